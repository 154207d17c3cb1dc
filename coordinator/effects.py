"""What the state machine wants done in the world. The service does it; the simulation in the tests looks at it.

What every chunk leads to is a Struct: made in a sixth of the time that a frozen dataclass takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from remuda.training.effects import Happened, RecordEffect
from remuda.training.journal_entry import JournalEntry
from remuda.training.snapshot import FinishedRunSnapshot
from remuda.wire.envelope import Envelope
from remuda.wire.messages import AnyMessage, LogRequest, Submit


class Send(Struct, frozen=True):
    """Put this envelope on the socket, to this peer."""

    peer: bytes
    envelope: Envelope
    after: str = ""
    """The experiment whose journal must have all of this turn first; empty: it may go at once."""
    again: bool = False
    """A repetition: not needed while the first one still waits for a journal."""


class Asked(Struct, frozen=True):
    """Whose message waits for an answer."""

    peer: bytes
    message_id: int
    """0 for one that is never resent; neither is its answer."""


@dataclass(frozen=True)
class PrepareRun:
    """Check the config and make the run folder; answer with RunPrepared or RunRefused."""

    asked: Asked
    experiment: str
    submit: Submit
    place: int = 0
    """Among all experiments, in the order they were submitted in."""


@dataclass(frozen=True)
class ReadLog:
    """Read what a client wants to see of an experiment's logs; answer with LogRead."""

    asked: Asked
    run_dir: str
    request: LogRequest
    is_over: bool
    """Nobody writes these logs any more."""


@dataclass(frozen=True)
class MarkRecoverable:
    """The run is journaled and listed: a coordinator that is started again knows it."""

    experiment: str


class DeleteChunks(Struct, frozen=True):
    """These payload files hold nothing that is still needed."""

    experiment: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class RewindCurves:
    """A learner goes on from this update: what the curves show beyond it is left out."""

    experiment: str
    train_iter: int


@dataclass(frozen=True)
class CloseRun:
    """The experiment is over: sweep data/ and close its logs."""

    experiment: str
    keep: frozenset[str]
    """Payload files the replay index still refers to."""
    results: Mapping[str, float] = field(default_factory=dict[str, float])
    """How it ended, in numbers; see remuda.logbook.pages.results_of."""


@dataclass(frozen=True)
class Abandon:
    """The experiment has failed in a way that its journal may not know of: list it as over, and let go of its files."""

    experiment: str
    last: FinishedRunSnapshot


@dataclass(frozen=True)
class Exit:
    """The coordinator's work is done."""


DiskEffect = RecordEffect | MarkRecoverable | DeleteChunks | RewindCurves | CloseRun | Abandon
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
    """The experiment whose journal must know first what is answered; empty: that of the message, if it has one."""


@dataclass(frozen=True)
class SendToPeer:
    """A message for whoever speaks over this connection; the state machine turns it into a Send."""

    peer: bytes
    message: AnyMessage


@dataclass(frozen=True)
class Broken:
    """Something went wrong inside this experiment that is no failure of its workers: it ends, and nothing else does."""

    experiment: str
    reason: str
    traceback: str


@dataclass(frozen=True)
class ForgetPeer:
    """This connection will not be used again."""

    peer: bytes


@dataclass(frozen=True)
class Release:
    """The lease is over; its worker is free again, or `dismiss`ed because it did not answer."""

    lease: int
    dismiss: bool = False


Step = Effect | SendToLease | Reply | SendToPeer | ForgetPeer | Release | Broken | Happened
