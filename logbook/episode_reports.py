"""Reports about episodes: of collectors, of evaluators, and of the commander about both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from remuda.logbook.lines import Value, grid, lines, one_line
from remuda.logbook.reports import Report, Topic
from remuda.logbook.statistics import episode_statistics, ratio


@dataclass(frozen=True, kw_only=True)
class CollectWindow:
    """Raw counts of what a collector did since its last report."""

    env_steps: int
    train_samples: int
    """Training rows made of them."""
    duration_s: float
    episode_returns: Sequence[float]
    """Undiscounted, of the episodes that ended, in order."""
    episode_lengths: Sequence[int]
    """Environment steps of the same episodes."""
    episode_info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """What else is known of them, by name: the discounted return, and what they reported."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means over the steps, as Declaration.collected names them."""
    env_restarts: int = 0
    """Environments that broke and were made again."""

    def statistics(self) -> dict[str, float]:
        """Five each, of returns, lengths and what else is known."""
        return episode_statistics(self.episode_returns, self.episode_lengths, self.episode_info)


@dataclass(frozen=True, kw_only=True)
class CollectTotals:
    """Raw counts of what a collector did since its run began."""

    env_steps: int
    train_samples: int
    episodes: int
    duration_s: float
    env_restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class CollectReport(Report):
    """What a collector did since its last report, and in all. Averages are nan where no episode ended."""

    window: CollectWindow
    totals: CollectTotals
    task: int | None = None
    """Number of the task that it is at; None where a run has one."""

    @property
    def topic(self) -> Topic:
        return "collect"

    def fields(self) -> dict[str, Value]:
        # Episode averages are over the episodes that ended, rates over the window's seconds.
        window, totals = self.window, self.totals
        statistics, episodes = window.statistics(), len(window.episode_returns)
        fields: dict[str, Value] = {
            "episode_count": episodes,
            "envstep_count": window.env_steps,
            **_numbered(self.task),
            "train_sample_count": window.train_samples,
            "avg_envstep_per_episode": statistics["length_mean"],
            "avg_sample_per_episode": ratio(window.train_samples, episodes),
            "avg_envstep_per_sec": ratio(window.env_steps, window.duration_s),
            "avg_train_sample_per_sec": ratio(window.train_samples, window.duration_s),
            "avg_episode_per_sec": ratio(episodes, window.duration_s),
            "collect_time": window.duration_s,
            "reward_mean": statistics["reward_mean"],
            "reward_std": statistics["reward_std"],
            "each_reward": list(window.episode_returns),
            "reward_max": statistics["reward_max"],
            "reward_min": statistics["reward_min"],
            "total_envstep_count": totals.env_steps,
            "total_train_sample_count": totals.train_samples,
            "total_episode_count": totals.episodes,
            "total_duration": totals.duration_s,
        }
        if totals.env_restarts:
            fields["env_restart_count"] = window.env_restarts
            fields["total_env_restart_count"] = totals.env_restarts
        return {**fields, **_beyond(statistics, fields), **window.metrics}

    def text(self) -> str:
        return f"collect end:\n{lines(self.fields())}"


@dataclass(frozen=True, kw_only=True)
class EpisodeReport(Report):
    """One evaluation episode ended."""

    env: int
    """Which environment of the vector, from 0."""
    final_reward: float
    """The episode's undiscounted return."""
    episode: int
    """How many have ended in this evaluation, this one included."""
    cut_after: int | None = None
    """Steps after which it was cut; null where it ended by itself."""

    @property
    def topic(self) -> Topic:
        return "episode"

    def fields(self) -> dict[str, Value]:
        return {"env": self.env, "final_reward": self.final_reward, "episode": self.episode}

    def text(self) -> str:
        cut = "" if self.cut_after is None else f", cut after {self.cut_after} steps"
        return (
            f"[EVALUATOR] env {self.env} finished episode, final reward: {self.final_reward:.4f}, "
            f"current episode: {self.episode}{cut}"
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationReport(Report):
    """An evaluation ended: exactly this checkpoint played these episodes."""

    ckpt_name: str
    """Name of the file that was played."""
    returns: Sequence[float]
    lengths: Sequence[int]
    duration_s: float
    info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """What else is known of the episodes, by name."""
    cut: int = 0
    """How many of them were cut before they had ended."""
    env_restarts: int = 0
    """Environments that broke and were made again; their episodes were played again."""
    wall_s: float = 0.0
    """When the checkpoint was saved, in seconds since the run began."""
    best: bool = False
    """It is the best so far."""
    task: int | None = None
    """Number of the task that was played; None where a run has one."""

    @property
    def topic(self) -> Topic:
        return "evaluation"

    def statistics(self) -> dict[str, float]:
        """Five each, of returns, lengths and what else is known."""
        return episode_statistics(self.returns, self.lengths, self.info)

    def fields(self) -> dict[str, Value]:
        statistics = self.statistics()
        episodes, env_steps = len(self.returns), sum(self.lengths)
        fields: dict[str, Value] = {
            "train_iter": self.train_iter,
            "ckpt_name": self.ckpt_name,
            **_numbered(self.task),
            "episode_count": episodes,
            "envstep_count": env_steps,
            "evaluate_time": self.duration_s,
            "avg_envstep_per_episode": ratio(env_steps, episodes),
            "avg_envstep_per_sec": ratio(env_steps, self.duration_s),
            "avg_time_per_episode": ratio(self.duration_s, episodes),
            "reward_mean": statistics["reward_mean"],
            "reward_std": statistics["reward_std"],
            "each_reward": list(self.returns),
            "reward_max": statistics["reward_max"],
            "reward_min": statistics["reward_min"],
        }
        if self.cut:
            fields["cut_count"] = self.cut
        if self.env_restarts:
            fields["env_restart_count"] = self.env_restarts
        return {**fields, **_beyond(statistics, fields)}

    def text(self) -> str:
        return f"=== Evaluation at Iteration {self.train_iter} Result ===\n{grid(self.fields())}"


@dataclass(frozen=True, kw_only=True)
class WorkerReport(Report):
    """A report of one collector or evaluator to the commander."""

    role: Literal["collector", "evaluator"]
    worker: str
    """Its UUID."""
    episode_count: int
    """Episodes that ended."""
    step_count: int
    """Environment steps taken, also those of episodes that are not over."""
    duration_s: float
    reward_mean: float
    """nan if no episode ended; so is the next."""
    reward_std: float
    statistics: Mapping[str, float] = field(default_factory=dict[str, float])
    """More of returns, lengths and what episodes reported; nan likewise. The averages per episode go by its
    `length_mean`."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of collectors: means over the steps, as Declaration.collected names them."""

    @property
    def topic(self) -> Topic:
        return "collector_worker" if self.role == "collector" else "evaluator_worker"

    def fields(self) -> dict[str, Value]:
        # Some steps belong to episodes that are not over: only the lengths of those that are say how long one takes.
        step_s = ratio(self.duration_s, self.step_count)
        episode_steps = self.statistics.get("length_mean", math.nan)
        return {
            "train_iter": self.train_iter,
            "episode_count": self.episode_count,
            "step_count": self.step_count,
            "avg_step_per_episode": episode_steps,
            "avg_time_per_step": step_s,
            "avg_time_per_episode": step_s * episode_steps,
            "reward_mean": self.reward_mean,
            "reward_std": self.reward_std,
            **self.statistics,
            **self.metrics,
        }

    def text(self) -> str:
        return f"[{self.role.upper()}] worker {one_line(self.worker)}:\n{lines(self.fields())}"


def _numbered(task: int | None) -> dict[str, Value]:
    return {} if task is None else {"task": task}


def _beyond(statistics: Mapping[str, float], fields: Mapping[str, Value]) -> dict[str, float]:
    """The statistics that have no place among the fields yet."""
    return {name: value for name, value in statistics.items() if name not in fields}
