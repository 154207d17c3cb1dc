"""Requests of clients to the coordinator; each is answered."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from remuda.wire.messages.parts import LogPlace, LongText, Message, Part, PathText, ShortText, Uuid

Origin = Literal["file", "command line", "measured", "algorithm", "default"]
"""Where a setting came from."""


Priority = Annotated[int, Meta(ge=-(2**31), le=2**31)]

MOST_LAST_LINES = 100_000
MAX_LOG_BYTES = 64 << 10
MAX_DIFF_BYTES = 256 << 10


class GitState(Part, frozen=True):
    """The source that a run was started from, as seen by its client; null if it is not known."""

    log: Annotated[bytes, Meta(max_length=MAX_LOG_BYTES)] | None = None
    """Commit, and the newest entries of the history."""
    diff: Annotated[bytes, Meta(max_length=MAX_DIFF_BYTES)] | None = None
    """Changes since that commit; a longer diff is cut."""
    warning: ShortText | None = None
    """Why it is not known, for the log."""


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
    """Where each setting came from, by dotted key."""
    notes: Annotated[list[ShortText], Meta(max_length=10)] = field(default_factory=list[str])
    """Lines for the commander's log: what was measured to choose settings."""
    experiment: Uuid | None = None
    """The id of the new experiment. With it, a submission that is repeated, for instance to a restarted coordinator, is
    the same experiment."""


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
    """Change the priority of an experiment that is not over. Answered by Done or Rejected."""

    experiment: ShortText
    """Id, unique prefix of an id, or name."""
    priority: Priority
    """Experiments with a higher priority get workers first."""


class LogRequest(Message, frozen=True):
    """Some lines of an experiment's logs. Answered by LogText or Rejected."""

    experiment: ShortText
    source: ShortText = "commander"
    """commander, learner, collector …, or the beginning of a worker's UUID."""
    last_lines: Annotated[int, Meta(ge=0, le=MOST_LAST_LINES)] | None = None
    """For logs that are not in `places`: begin this number of lines before the end; null begins at the start."""
    places: Annotated[list[LogPlace], Meta(max_length=10_000)] = field(default_factory=list[LogPlace])
    """Where the last answers ended; the log that was read longest ago comes first."""


class Shutdown(Message, frozen=True):
    """Stop every experiment, let every worker leave, end the coordinator. Answered by Done at once."""

    reason: ShortText = "asked to"


ClientMessage = Submit | StatusRequest | StopExperiment | Prioritize | LogRequest | Shutdown
