"""Reports about episodes: of collectors, of evaluators, and of the commander about both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from remuda.logbook.lines import Value, grid, lines, one_line
from remuda.logbook.reports import Report, Topic
from remuda.logbook.statistics import episode_statistics, ratio


@dataclass(frozen=True, kw_only=True)
class CollectWindow:
    """Raw counts of a collector since its last report."""

    env_steps: int
    train_samples: int
    """Training rows made of the steps."""
    duration_s: float
    episode_returns: Sequence[float]
    """Undiscounted returns of the finished episodes, in order."""
    episode_lengths: Sequence[int]
    """Environment steps of the same episodes."""
    episode_info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """Further values of the finished episodes by name: the discounted return, and values that the environment reported.
    """
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means over the steps, named by Declaration.collected."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counted events by name, for example environments that broke and were rebuilt."""

    def statistics(self) -> dict[str, float]:
        """Return five statistics each of returns, lengths and further values."""
        return episode_statistics(self.episode_returns, self.episode_lengths, self.episode_info)


@dataclass(frozen=True, kw_only=True)
class CollectTotals:
    """Raw counts of a collector since the start of its run."""

    env_steps: int
    train_samples: int
    episodes: int
    duration_s: float
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True)
class CollectReport(Report):
    """Work of a collector since its last report, and in total. Averages without finished episodes are nan."""

    _topic: ClassVar[Topic] = "collect"
    window: CollectWindow
    totals: CollectTotals
    task: int | None = None
    """Number of the current task; None in runs with a single task."""

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the window. An event is shown from its first occurrence in the run on."""
        return {name: self.window.counts.get(name, 0) for name, total in self.totals.counts.items() if total}

    def fields(self) -> dict[str, Value]:
        # Averages are over finished episodes, rates over the seconds of the window.
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
        for name, count in self.counts.items():
            fields |= {name: count, f"total_{name}": totals.counts[name]}
        return {**fields, **_beyond(statistics, fields), **window.metrics}

    def text(self) -> str:
        return f"collect end:\n{lines(self.fields())}"


@dataclass(frozen=True, kw_only=True)
class EpisodeReport(Report):
    """End of an evaluation episode."""

    _topic: ClassVar[Topic] = "episode"
    env: int
    """Index of the environment in the vector, from 0."""
    final_reward: float
    """The episode's undiscounted return."""
    episode: int
    """Finished episodes of this evaluation, including this episode."""
    cut_after: int | None = None
    """Step limit of a cut episode; None without a cut."""

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

    _topic: ClassVar[Topic] = "evaluation"
    ckpt_name: str
    """Name of the evaluated file."""
    returns: Sequence[float]
    lengths: Sequence[int]
    duration_s: float
    info: Mapping[str, Sequence[float]] = field(default_factory=dict[str, list[float]])
    """Further values of the episodes, by name."""
    cut: int = 0
    """Episodes that were cut before their end."""
    env_restarts: int = 0
    """Environments that broke and were rebuilt; their episodes were repeated."""
    wall_s: float = 0.0
    """Time of saving the checkpoint, in seconds since the run began."""
    best: bool = False
    """True for the best checkpoint so far."""
    task: int | None = None
    """Number of the evaluated task; None in runs with a single task."""

    def statistics(self) -> dict[str, float]:
        """Return five statistics each of returns, lengths and further values."""
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
    """Report of a collector or evaluator to the commander."""

    role: Literal["collector", "evaluator"]
    worker: str
    """UUID of the worker."""
    episode_count: int
    """Finished episodes."""
    step_count: int
    """Environment steps, including those of unfinished episodes."""
    duration_s: float
    reward_mean: float
    """nan without finished episodes, like `reward_std`."""
    reward_std: float
    statistics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further statistics of returns, lengths and reported values; nan without finished episodes. Averages per episode
    use `length_mean`."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Means over the steps of a collector, named by Declaration.collected."""

    @property
    def topic(self) -> Topic:
        return "collector_worker" if self.role == "collector" else "evaluator_worker"

    def fields(self) -> dict[str, Value]:
        # Some steps belong to unfinished episodes, so only finished episodes give a duration.
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
    """Return the statistics that are not yet among the fields."""
    return {name: value for name, value in statistics.items() if name not in fields}
