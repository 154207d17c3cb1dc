"""Events for the user's callbacks, and the callbacks' decisions: pieces of messages, and of the journal."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from remuda.wire.messages.parts import (
    AnyReturns,
    CheckpointReason,
    Count,
    EpisodeLengths,
    FileName,
    Histogram,
    LongText,
    Part,
    ShortText,
)

MOST_CALLBACKS = 100
MOST_NUMBERS = 1_000
"""Most numbers that one callback may log about an event."""
MOST_HISTOGRAMS = 100
"""Most histograms likewise."""
MOST_CHANGES = 100
"""Most changes that one callback may request at one event."""
MOST_STATE_BYTES = 1 << 20
"""Most bytes of a callback's state, part of the journal and of each event with a change."""

SettingValue = int | float
SettingChanges = Annotated[dict[ShortText, list[tuple[Count, SettingValue]]], Meta(max_length=1_000)]
"""Values by setting (`learner.learning_rate`), each with the first env_step of the value; the newest value last."""
CallbackStates = Annotated[
    dict[ShortText, Annotated[bytes, Meta(max_length=MOST_STATE_BYTES)]], Meta(max_length=MOST_CALLBACKS)
]
"""Result of `state()` by callback, in MessagePack."""


class Moment(Part, frozen=True, kw_only=True, tag_field="event"):
    """An event for callbacks."""

    env_step: Count
    """Environment steps counted by then."""
    train_iter: Count
    """Gradient updates done by then."""


class Started(Moment, frozen=True, kw_only=True, tag="start"):
    """The run has begun, or continues after a stop."""

    resumed: bool = False


class Evaluated(Moment, frozen=True, kw_only=True, tag="evaluation"):
    """A checkpoint was evaluated; the counters are the checkpoint's."""

    mean_return: float
    """nan if returns are infinite."""
    returns: AnyReturns
    """Return of each episode."""
    lengths: EpisodeLengths
    is_best: bool
    """True for the best checkpoint so far."""
    task: Count = 0
    """Number of the played task; see Task."""
    checkpoint: FileName
    """File in the run folder's ckpt/."""


class Checkpointed(Moment, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint is saved; the counters are its own."""

    checkpoint: FileName
    """File in the run folder's ckpt/."""
    reason: CheckpointReason


class Episodes(Moment, frozen=True, kw_only=True, tag="episodes"):
    """Training episodes have ended: all since the last event of this kind."""

    returns: AnyReturns
    lengths: EpisodeLengths
    env_steps: EpisodeLengths
    """The run's environment steps when each episode was counted."""
    left_out: Count = 0
    """Number of older episodes left out, since too many had ended before this event."""


class Ended(Moment, frozen=True, kw_only=True, tag="end"):
    """The run is over, with its last checkpoint saved and evaluated."""

    reason: ShortText
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; or a sentence."""
    state: Literal["finished", "stopped", "failed"]


CallbackEvent = Started | Evaluated | Checkpointed | Episodes | Ended


class Verdict(Part, frozen=True):
    """Decision of one callback about an event."""

    callback: ShortText
    """Class of the callback, with a number if the run has several callbacks of this class."""
    numbers: Annotated[dict[ShortText, float], Meta(max_length=MOST_NUMBERS)] = field(default_factory=dict[str, float])
    """To be logged; may be nan or infinite."""
    stop: ShortText | None = None
    """Reason to end the run; null to continue."""
    changes: Annotated[list[tuple[ShortText, SettingValue]], Meta(max_length=MOST_CHANGES)] = field(
        default_factory=list[tuple[str, int | float]]
    )
    """Settings with new values from now on, in this order."""
    refused: Annotated[list[ShortText], Meta(max_length=MOST_CHANGES)] = field(default_factory=list[str])
    """Reasons for refused changes."""
    failure: ShortText | None = None
    """The error that the callback raised."""
    traceback: LongText = ""
    state: Annotated[bytes, Meta(max_length=MOST_STATE_BYTES)] | None = None
    """State after the event, in MessagePack; null if unchanged."""
    task_json: LongText | None = None
    """JSON: arguments of a requested task, over those of `env.kwargs`; null for no task."""
    histograms: Annotated[dict[ShortText, Histogram], Meta(max_length=MOST_HISTOGRAMS)] = field(
        default_factory=dict[str, Histogram]
    )
    """To be logged."""


class CallbackAnswer(Part, frozen=True):
    """Decisions of all callbacks about an event, without callbacks that decided nothing."""

    verdicts: Annotated[list[Verdict], Meta(max_length=MOST_CALLBACKS)] = field(default_factory=list[Verdict])
    wants_episodes: bool = False
    """True if a callback wants training episodes."""
