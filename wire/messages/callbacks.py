"""Events that the user's callbacks are told of, and what they decide: pieces of messages, and of the journal."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from remuda.wire.messages.parts import (
    AnyReturns,
    CheckpointReason,
    Count,
    EpisodeLengths,
    FileName,
    LongText,
    Part,
    ShortText,
)

MOST_CALLBACKS = 100
MOST_NUMBERS = 1_000
"""That one callback may log about one event."""
MOST_CHANGES = 100
"""That one callback may ask for at one event."""
MOST_STATE_BYTES = 1 << 20
"""Of one callback: its state is in the journal, and travels with each event that changes it."""

SettingValue = int | float
SettingChanges = Annotated[dict[ShortText, list[tuple[Count, SettingValue]]], Meta(max_length=1_000)]
"""By setting (`learner.learning_rate`), from which env_step on it has which value; the newest last."""
CallbackStates = Annotated[
    dict[ShortText, Annotated[bytes, Meta(max_length=MOST_STATE_BYTES)]], Meta(max_length=MOST_CALLBACKS)
]
"""By callback, what `state()` returned, in MessagePack."""


class Moment(Part, frozen=True, kw_only=True, tag_field="event"):
    """Something that callbacks are told of."""

    env_step: Count
    """Environment steps counted by then."""
    train_iter: Count
    """Gradient updates done by then."""


class Started(Moment, frozen=True, kw_only=True, tag="start"):
    """The run has begun, or begins again where it had stopped."""

    resumed: bool = False


class Evaluated(Moment, frozen=True, kw_only=True, tag="evaluation"):
    """A checkpoint was evaluated; the counters are those of the checkpoint."""

    mean_return: float
    """nan if returns are infinite."""
    returns: AnyReturns
    """Of each episode."""
    lengths: EpisodeLengths
    is_best: bool
    """The best so far."""
    task: Count = 0
    """Number of the task that was played; see Task."""
    checkpoint: FileName
    """Its file, in the run folder's ckpt/."""


class Checkpointed(Moment, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is saved; the counters are its own."""

    checkpoint: FileName
    """Its file, in the run folder's ckpt/."""
    reason: CheckpointReason


class Episodes(Moment, frozen=True, kw_only=True, tag="episodes"):
    """Training episodes have ended: all since the last event of this kind."""

    returns: AnyReturns
    lengths: EpisodeLengths
    env_steps: EpisodeLengths
    """The run's environment steps when each was counted."""
    left_out: Count = 0
    """Older ones that are missing here, since too many had ended before anybody could be told."""


class Ended(Moment, frozen=True, kw_only=True, tag="end"):
    """The run is over, its last checkpoint saved and evaluated."""

    reason: ShortText
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; or a sentence."""
    state: Literal["finished", "stopped", "failed"]


CallbackEvent = Started | Evaluated | Checkpointed | Episodes | Ended


class Verdict(Part, frozen=True):
    """What one callback has decided about one event."""

    callback: ShortText
    """Its class, with a number if there are several of it."""
    numbers: Annotated[dict[ShortText, float], Meta(max_length=MOST_NUMBERS)] = field(default_factory=dict[str, float])
    """To be logged; may be nan or infinite."""
    stop: ShortText | None = None
    """Why the run is to end; null if it is not."""
    changes: Annotated[list[tuple[ShortText, SettingValue]], Meta(max_length=MOST_CHANGES)] = field(
        default_factory=list[tuple[str, int | float]]
    )
    """Settings that are to have other values from now on, in this order."""
    refused: Annotated[list[ShortText], Meta(max_length=MOST_CHANGES)] = field(default_factory=list[str])
    """Why others cannot have the values that it asked for."""
    failure: ShortText | None = None
    """The error that it raised."""
    traceback: LongText = ""
    state: Annotated[bytes, Meta(max_length=MOST_STATE_BYTES)] | None = None
    """Its state after the event, in MessagePack; null if that has not changed."""
    task_json: LongText | None = None
    """JSON: the arguments of a task that it asks for, over those of `env.kwargs`; null for none."""


class CallbackAnswer(Part, frozen=True):
    """What all callbacks have decided about one event; those that have nothing to say are left out."""

    verdicts: Annotated[list[Verdict], Meta(max_length=MOST_CALLBACKS)] = field(default_factory=list[Verdict])
    wants_episodes: bool = False
    """Whether any of them is to be told of training episodes."""
