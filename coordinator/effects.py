"""Outputs of the state machine. The service carries out these effects; the simulation in the tests inspects them.

Effects of every chunk are Structs: creation takes a sixth of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from traceback import format_exc
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from remuda.coordinator.bill import Charge
from remuda.training.effects import Happened, RecordEffect
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FinishedRun, Identity
from remuda.wire.codec import Envelope
from remuda.wire.messages import AnyMessage, BillRequest, ChunkAccepted, ChunkReady, LogRequest, Quota, Submit


class Send(Struct, frozen=True):
    """Put this envelope on the socket, to this peer."""

    peer: bytes
    envelope: Envelope
    after: str = ""
    """The experiment whose journal must have all of this turn before the envelope is sent; empty: no wait."""
    again: bool = False
    """A repetition: not needed while the first one still waits for a journal."""


class Requester(Struct, frozen=True):
    """The peer whose message waits for an answer."""

    peer: bytes
    message_id: int
    """Id of the message; 0 if neither the message nor its answer is resent."""
    who: str = ""
    """Name of the sender's key."""


@dataclass(frozen=True)
class PrepareRun:
    """Check the config and make the run folder; answer with RunPrepared or RunRefused."""

    requester: Requester
    experiment: str
    submit: Submit
    submission: int = 0
    """Number of the experiment in order of submission."""

    def identity(self, run_dir: str, policy_file: str, *, policy: str = "", project: str = "") -> Identity:
        """Return the identity of the experiment in this run folder, for this policy of several."""
        submit = self.submit
        numbers = submit.priority, self.submission
        user = self.requester.who
        return Identity(
            self.experiment, submit.name, run_dir, policy_file, *numbers, policy=policy, user=user, project=project
        )


@dataclass(frozen=True)
class ReadLog:
    """Read logs of an experiment for a client; answer with Answered."""

    requester: Requester
    run_dir: str
    request: LogRequest
    is_over: bool
    """The run is over, so no process writes these logs any more."""


@dataclass(frozen=True)
class ReadBill:
    """Add up the use of all runs for a client; answer with Answered."""

    requester: Requester
    request: BillRequest
    known: tuple[Charge, ...]
    """Unfinished runs, and the newest finished runs."""


@dataclass(frozen=True)
class KeepQuota:
    """Write a quota into the list of runs; answer with QuotaKept."""

    requester: Requester
    quota: Quota


@dataclass(frozen=True)
class MarkRecoverable:
    """The run is journaled and listed: a restarted coordinator knows it."""

    experiment: str


@dataclass(frozen=True)
class FindRoom:
    """Workers of this run wait for room on the disk: hold the run up until so many bytes fit."""

    experiment: str
    size_bytes: int


class DeleteChunks(Struct, frozen=True):
    """Delete payload files that are not needed any more."""

    experiment: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class RewindCurves:
    """Remove points of the curves after this update, where a learner continues."""

    experiment: str
    train_iter: int


@dataclass(frozen=True)
class CloseRun:
    """Sweep data/ of a finished experiment and close its logs."""

    experiment: str
    keep: frozenset[str]
    """Payload files still in use by the replay index."""
    results: Mapping[str, float] = field(default_factory=dict[str, float])
    """Results of the run, as numbers; see remuda.logbook.tensorboard.results_of."""


@dataclass(frozen=True)
class Abandon:
    """List a failed experiment as over, and close its files; the journal may not know the end."""

    experiment: str
    last: FinishedRun


@dataclass(frozen=True)
class Exit:
    """The coordinator's work is done."""


@dataclass(frozen=True)
class PolicyEffect:
    """An effect on the files of one of several policies of a run."""

    experiment: str
    policy: str
    effect: RecordEffect | DeleteChunks | RewindCurves | CloseRun


DiskEffect = RecordEffect | MarkRecoverable | FindRoom | DeleteChunks | RewindCurves | CloseRun | PolicyEffect | Abandon
ForHerd = PrepareRun | ReadLog | ReadBill | KeepQuota
"""Work for the disk with an event as the answer."""
Effect = Send | ForHerd | DiskEffect | JournalEntry | Exit


@dataclass(frozen=True)
class SendToLease:
    """A message for the worker with this lease; the state machine turns it into a Send."""

    lease: int
    message: AnyMessage


class Reply(Struct, frozen=True):
    """The reply to the current message; the state machine turns it into a Send."""

    message: AnyMessage
    after: str = ""
    """The experiment whose journal must have the answered work; empty: the experiment of the message, if any."""


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
    """An error inside this experiment, not a failure of the workers: only this experiment ends."""

    experiment: str
    reason: str
    traceback: str

    @staticmethod
    def by(error: Exception, experiment: str) -> Broken:
        """Return the end of this experiment by the exception that is being handled."""
        return Broken(experiment, f"{type(error).__name__}: {error}", format_exc())


@dataclass(frozen=True)
class ForgetPeer:
    """This connection will not be used again."""

    peer: bytes


@dataclass(frozen=True)
class Release:
    """End a lease. The worker is free again, or is dismissed (`dismiss`) for lack of an answer."""

    lease: int
    dismiss: bool = False


Step = Effect | SendToLease | Reply | SendToPeer | ForgetPeer | Release | Broken | Happened


def effect_of(step: Step) -> Step:
    """Unwrap the effect of a PolicyEffect; return other steps unchanged."""
    return step.effect if isinstance(step, PolicyEffect) else step


P = ParamSpec("P")


class _Named(Protocol):
    identity: Identity


ExperimentT = TypeVar("ExperimentT", bound=_Named)


def contained(
    method: Callable[Concatenate[ExperimentT, P], list[Step]],
) -> Callable[Concatenate[ExperimentT, P], list[Step]]:
    """Let an error in a method of an experiment end only this experiment."""

    @wraps(method)
    def guarded(self: ExperimentT, /, *arguments: P.args, **named: P.kwargs) -> list[Step]:
        try:
            return method(self, *arguments, **named)
        except Exception as error:
            return [Broken.by(error, self.identity.id)]

    return guarded
