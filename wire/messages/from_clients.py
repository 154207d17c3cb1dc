"""Requests of clients to the coordinator, each with an answer."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from remuda.wire.messages.parts import Count, LogPosition, LongText, Message, Part, PathText, Quota, ShortText, Uuid

Origin = Literal["file", "command line", "measured", "algorithm", "default"]
"""Source of a setting."""


BillKey = Literal["user", "project", "run", "day"]
"""What a line of a bill is about."""
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31)]

MOST_LAST_LINES = 100_000
MAX_LOG_BYTES = 64 << 10
MAX_DIFF_BYTES = 256 << 10


class GitState(Part, frozen=True):
    """Source code version at the start of a run, as seen by its client; null if unknown."""

    log: Annotated[bytes, Meta(max_length=MAX_LOG_BYTES)] | None = None
    """Commit, and the newest entries of the history."""
    diff: Annotated[bytes, Meta(max_length=MAX_DIFF_BYTES)] | None = None
    """Changes since the commit; a longer diff is cut."""
    warning: ShortText | None = None
    """Reason for a missing version, for the log."""


class Submit(Message, frozen=True):
    """A new experiment. Answered by Submitted or Rejected."""

    name: ShortText
    config_json: LongText
    run_dir: PathText
    """Absolute, or relative to the coordinator's runs folder."""
    on_exists: Literal["error", "resume", "force", "rename"] = "error"
    priority: Priority = 0
    git: GitState | None = None
    """Of the client's working directory; null outside of a repository."""
    provenance: Annotated[dict[ShortText, Origin], Meta(max_length=10_000)] = field(default_factory=dict[str, Origin])
    """Source of each setting, by dotted key."""
    notes: Annotated[list[ShortText], Meta(max_length=10)] = field(default_factory=list[str])
    """Lines for the commander's log: measurements behind chosen settings."""
    experiment: Uuid | None = None
    """Id of the new experiment. A repeated submission with this id, for instance to a restarted coordinator, is the
    same experiment."""


class StatusRequest(Message, frozen=True):
    """Answered by Status."""

    experiment: ShortText | None = None
    """Id, unique prefix of an id, or name; null for all."""


class StopExperiment(Message, frozen=True):
    """Answered by Done or Rejected."""

    experiment: ShortText
    now: bool = False
    """Skip the final evaluation."""


class Prioritize(Message, frozen=True):
    """Change the priority of an unfinished experiment. Answered by Done or Rejected."""

    experiment: ShortText
    """Id, unique prefix of an id, or name."""
    priority: Priority
    """Experiments with a higher priority get workers first."""


class BillRequest(Message, frozen=True):
    """Use of all runs in a period. Answered by Bill or Rejected."""

    by: BillKey = "user"
    since_hour: Count = 0
    """First hour, in hours since 1970 (UTC)."""
    until_hour: Count = 2**40
    """The hour after the last."""


class SetQuota(Message, frozen=True):
    """Set the weight and the limits of a user or project; a quota without any is removed. Answered by Done or
    Rejected."""

    quota: Quota


class QuotaRequest(Message, frozen=True):
    """Answered by Quotas."""


class LogRequest(Message, frozen=True):
    """Some lines of an experiment's logs. Answered by LogText or Rejected."""

    experiment: ShortText
    source: ShortText = "commander"
    """commander, learner, collector …, or the beginning of a worker's UUID."""
    last_lines: Annotated[int, Meta(ge=0, le=MOST_LAST_LINES)] | None = None
    """For logs outside `positions`: begin this number of lines before the end; null begins at the start."""
    positions: Annotated[list[LogPosition], Meta(max_length=10_000)] = field(default_factory=list[LogPosition])
    """Ends of the last answers; the log with the oldest read comes first."""


class Shutdown(Message, frozen=True):
    """Stop every experiment, let every worker leave, end the coordinator. Answered by Done at once."""

    reason: ShortText = "asked to"


ClientMessage = (
    Submit | StatusRequest | StopExperiment | Prioritize | BillRequest | SetQuota | QuotaRequest | LogRequest | Shutdown
)
