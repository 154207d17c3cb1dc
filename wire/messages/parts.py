"""What messages are made of: the types of their fields, and the pieces that several of them share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from remuda.config.bounds import MOST_EVALUATION_EPISODES

Role = Literal["collector", "evaluator", "learner"]
Phase = Literal["idle", "preparing", "working", "waiting", "saving"]
"""What kind of thing a worker does: how long it may take without any progress depends on it. `preparing`: building
environments or networks, loading; `waiting`: for others, for as long as it takes."""
CheckpointReason = Literal["initial", "interval", "evaluation", "final", "interrupt"]

Count = Annotated[int, Meta(ge=0, le=2**53)]
_LARGEST = 1.7976931348623157e308
Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
"""A number: neither nan nor infinite."""
Seconds = Annotated[float, Meta(ge=0.0, le=1e15)]
"""A duration: thirty million years are enough."""
Uuid = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")]
_SHORT_CHARACTERS = 1_000
ShortText = Annotated[str, Meta(max_length=_SHORT_CHARACTERS)]
LongText = Annotated[str, Meta(max_length=200_000)]
PathText = Annotated[str, Meta(min_length=1, max_length=4_096)]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")]
"""A bare file name: no separator, no leading dot, so it cannot leave the folder it belongs to."""


_EPISODES = Meta(max_length=MOST_EVALUATION_EPISODES)
EpisodeLengths = Annotated[list[Count], _EPISODES]
FiniteReturns = Annotated[list[Finite], _EPISODES]
AnyReturns = Annotated[list[float], _EPISODES]
"""What an environment paid may be infinite, or no number at all."""
EpisodeInfo = Annotated[dict[ShortText, Annotated[list[Finite], _EPISODES]], Meta(max_length=1_000)]
"""By name, what episodes reported besides (see the setting env.episode_info); not every one need have."""


def check_episodes(returns: list[float], lengths: list[int], info: dict[str, list[float]]) -> None:
    """Raise ValueError, which the codec takes for a malformed message, where these are not of the same episodes."""
    if len(returns) != len(lengths):
        raise ValueError(f"{len(returns)} returns of {len(lengths)} episodes")
    for name, values in info.items():
        if len(values) > len(returns):
            raise ValueError(f"{len(values)} values of {name!r} of {len(returns)} episodes")


def shortened(text: str) -> str:
    """As much of it as a ShortText holds: one that is longer would not be understood."""
    return text[:_SHORT_CHARACTERS]


class Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """What every message is: immutable, tagged with its class name, closed to unknown fields."""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a message; never sent alone."""


class Counters(Part, frozen=True):
    """The one set of counters; every other number a view shows is derived from these."""

    env_step: Count = 0
    train_iter: Count = 0
    episode: Count = 0
    policy_version: Count = 0
    wall_s: Seconds = 0.0


class PolicyRef(Part, frozen=True, order=True):
    """Which policy: the learner's epoch first, then the version it published under that epoch."""

    epoch: Count = 0
    version: Count = 0
    train_iter: Count = 0


class ChunkId(Part, frozen=True, order=True):
    """Unique chunk id: worker, incarnation, and sequence number (from 0, without gaps)."""

    worker: Uuid
    incarnation: Count
    sequence: Count


class ChunkMeta(Part, frozen=True):
    """All that is known of a chunk without opening its payload. Also stored in the payload's header."""

    chunk: ChunkId
    file: FileName
    """Name inside the run folder's data/."""
    rows: Count
    """Training rows in the payload; differs from env_steps, since an n-step row ends later than it starts."""
    env_steps: Count
    """Environment steps really taken for this chunk (resets not counted)."""
    payload_bytes: Count
    checksum: Count
    """Over the columns' names and bytes, in sorted order of name; see storage/tensor_file.py."""
    policy: PolicyRef
    """The oldest policy that acted in it."""
    collect_s: Seconds
    episode_returns: FiniteReturns = field(default_factory=list[float])
    """Undiscounted returns of the episodes that ended in it, in order of ending."""
    episode_lengths: EpisodeLengths = field(default_factory=list[int])
    """Their lengths, as many."""
    episode_info: EpisodeInfo = field(default_factory=dict[str, list[float]])
    """What these episodes reported besides."""

    def __post_init__(self) -> None:
        """Raise ValueError where numbers contradict each other."""
        check_episodes(self.episode_returns, self.episode_lengths, self.episode_info)


class IndexedChunk(Part, frozen=True):
    """A chunk the learner has not heard of, and the row ids that its rows were given."""

    first_row: Count
    meta: ChunkMeta


class CheckpointRecord(Part, frozen=True):
    """One checkpoint as index.json lists it."""

    train_iter: Count
    env_step: Count
    wall_s: Seconds
    reward: Finite | None
    """Mean evaluation return of exactly this file; null until evaluated."""
    file: FileName
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: ShortText
    """Local time, ISO 8601 with offset."""
    episode: Count = 0
    policy: PolicyRef = PolicyRef()
    """Published last before it; a resumed learner goes on under a higher epoch."""

    @property
    def counters(self) -> Counters:
        """The run's counters when it was saved."""
        return Counters(self.env_step, self.train_iter, self.episode, self.policy.version, self.wall_s)


class LogPlace(Part, frozen=True):
    """How far a log has been read."""

    file: PathText
    """Relative to the run's log/."""
    inode: Count = 0
    """Tells a file that was put in place of another."""
    offset: Count = 0
