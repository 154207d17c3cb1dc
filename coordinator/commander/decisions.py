"""What a commander may decide; the coordinator turns it into messages, the serial runner into calls."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.wire.messages import CheckpointReason, CheckpointRecord


@dataclass(frozen=True)
class Save:
    """The learner shall save a checkpoint."""

    reason: CheckpointReason


@dataclass(frozen=True)
class StartEvaluation:
    """The evaluators shall play exactly this checkpoint."""

    record: CheckpointRecord


@dataclass(frozen=True)
class JudgeByTraining:
    """Nothing is played: the newest training episodes shall stand for how good this checkpoint is."""

    record: CheckpointRecord


@dataclass(frozen=True)
class End:
    """The run shall end."""

    reason: str
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; or a sentence naming what failed."""
    explanation: str
    """For people: which condition, its value and its bound."""


Decision = Save | StartEvaluation | JudgeByTraining | End


@dataclass(frozen=True)
class Verdict:
    """What an evaluation means."""

    best: bool
    """Its checkpoint is the best so far."""
    decisions: tuple[Decision, ...]
