"""What the state machine asks for. The service carries it out; the simulation in the tests looks at it.

Effects that come with every chunk are Structs: making one takes a sixth of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from remuda.training.effects import Happened, RecordEffect
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FinishedRunSnapshot
from remuda.wire.codec import Envelope
from remuda.wire.messages import AnyMessage, ChunkAccepted, ChunkReady, LogRequest, Submit


class Send(Struct, frozen=True):
    """Put this envelope on the socket, to this peer."""

    peer: bytes
    envelope: Envelope
    after: str = ""
    """The experiment whose journal must have all of this turn before the envelope is sent; empty: it is sent at
    once."""
    again: bool = False
    """A repetition: not needed while the first one still waits for a journal."""


class Requester(Struct, frozen=True):
    """The peer whose message waits for an answer."""

    peer: bytes
    message_id: int
    """The message's id; 0 for a message that is never resent, and neither is its answer."""
    who: str = ""
    """The name of the key with which it was sent."""


@dataclass(frozen=True)
class PrepareRun:
    """Check the config and make the run folder; answer with RunPrepared or RunRefused."""

    requester: Requester
    experiment: str
    submit: Submit
    submission: int = 0
    """Its number among all experiments, in order of submission."""


@dataclass(frozen=True)
class ReadLog:
    """Read what a client wants to see of an experiment's logs; answer with LogRead."""

    requester: Requester
    run_dir: str
    request: LogRequest
    is_over: bool
    """The run is over, so nobody writes these logs any more."""


@dataclass(frozen=True)
class MarkRecoverable:
    """The run is journaled and listed: a coordinator that is started again knows it."""

    experiment: str


@dataclass(frozen=True)
class FindRoom:
    """Workers of this run wait for room on its disk: it is held up until there is room for so many bytes."""

    experiment: str
    size_bytes: int


class DeleteChunks(Struct, frozen=True):
    """These payload files hold nothing that is still needed."""

    experiment: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class RewindCurves:
    """A learner continues from this update: points of the curves after it are removed."""

    experiment: str
    train_iter: int


@dataclass(frozen=True)
class CloseRun:
    """The experiment is over: sweep data/ and close its logs."""

    experiment: str
    keep: frozenset[str]
    """Payload files that the replay index still refers to."""
    results: Mapping[str, float] = field(default_factory=dict[str, float])
    """How the run ended, in numbers; see remuda.logbook.tensorboard.results_of."""


@dataclass(frozen=True)
class Abandon:
    """The experiment has failed, and its journal may not know it: list it as over, and close its files."""

    experiment: str
    last: FinishedRunSnapshot


@dataclass(frozen=True)
class Exit:
    """The coordinator's work is done."""


@dataclass(frozen=True)
class PolicyEffect:
    """What one of several policies of a run asks for: it concerns the files of that policy."""

    experiment: str
    policy: str
    effect: RecordEffect | DeleteChunks | RewindCurves | CloseRun


DiskEffect = RecordEffect | MarkRecoverable | FindRoom | DeleteChunks | RewindCurves | CloseRun | PolicyEffect | Abandon
Effect = Send | PrepareRun | ReadLog | DiskEffect | JournalEntry | Exit


@dataclass(frozen=True)
class SendToLease:
    """A message for the worker that holds this lease; the state machine turns it into a Send."""

    lease: int
    message: AnyMessage


class Reply(Struct, frozen=True):
    """The reply to the message being handled; the state machine turns it into a Send."""

    message: AnyMessage
    after: str = ""
    """The experiment whose journal must have what is answered; empty: that of the message, if it has one."""


def refused(message: ChunkReady, why: str) -> Reply:
    """Return the answer to a chunk that is not counted."""
    return Reply(ChunkAccepted(message.meta.chunk, 0, message.meta.policy, {}, rejected=why))


@dataclass(frozen=True)
class SendToPeer:
    """A message for the peer of this connection; the state machine turns it into a Send."""

    peer: bytes
    message: AnyMessage


@dataclass(frozen=True)
class Broken:
    """An error inside this experiment that is no failure of its workers: this experiment ends, and no other."""

    experiment: str
    reason: str
    traceback: str


@dataclass(frozen=True)
class ForgetPeer:
    """This connection will not be used again."""

    peer: bytes


@dataclass(frozen=True)
class Release:
    """The lease is over. Its worker is free again, or is dismissed (`dismiss`) because it did not answer."""

    lease: int
    dismiss: bool = False


Step = Effect | SendToLease | Reply | SendToPeer | ForgetPeer | Release | Broken | Happened
