"""Facts about an algorithm for all roles, as plain data: the coordinator never imports user code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from remuda.config.section import (
    MOST_COLLECTED,
    Discount,
    Fraction,
    Horizon,
    NSteps,
    Schedule,
    Section,
    UnrollSteps,
    value_at,
)

MOST_NAMES = 200
"""Limit for columns, metrics and schedules of an algorithm: every log row and every checkpoint holds all of them."""
BESIDES_MEAN = ("std", "max", "min", "median")
"""Statistics in the logs besides the mean."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_./-]{0,99}$")]
CollectedName = Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9_]{0,99}$")]
"""Name of a collected metric, which is also a column of progress.txt: the fixed columns begin with a capital letter."""
IN_COLLECTORS_LOG = frozenset({
    "train_iter", "episode_count", "envstep_count", "train_sample_count", "step_count", "collect_time", "each_reward",
    "avg_envstep_per_episode", "avg_sample_per_episode", "avg_envstep_per_sec", "avg_train_sample_per_sec",
    "avg_episode_per_sec", "avg_step_per_episode", "avg_time_per_step", "avg_time_per_episode",
    "total_envstep_count", "total_train_sample_count", "total_episode_count", "total_duration",
    *(f"{name}_{of}" for name in ("reward", "length", "discounted_return") for of in ("mean", *BESIDES_MEAN)),
})  # fmt: skip
"""Fixed names in the log of a collector, and in the commander's log of collectors."""


class Steps(Section):
    """A row is one transition over `n_step` environment steps. Columns of batches: docs/algorithms.md#steps; the other
    shapes are beside it."""

    kind: Literal["steps"] = "steps"
    """Name of this row shape."""
    n_step: NSteps
    """Environment steps of summed rewards before bootstrapping."""
    discount: Discount
    """Discount per environment step."""


class Segments(Section):
    """A row is `horizon_steps` consecutive time steps of one environment. Columns: docs/algorithms.md#segments."""

    kind: Literal["segments"] = "segments"
    """Name of this row shape."""
    horizon_steps: Horizon
    """Steps of one environment in a segment."""
    discount: Discount
    """Discount per environment step."""


class Unrolls(Section):
    """A row is one environment step with the following steps of the episode, for algorithms with a learned model
    (Schrittwieser et al. 2020): `unroll_steps` steps of the model, with a return over `n_step` steps after each. From
    the end of the episode on the row is padded: observations repeat the last observation, and actions, rewards and
    recorded columns are 0. Every environment step has a row. Columns: docs/algorithms.md#unrolls."""

    kind: Literal["unrolls"] = "unrolls"
    """Name of this row shape."""
    unroll_steps: UnrollSteps
    """Unrolled steps of the model, with the actions in the row."""
    n_step: NSteps
    """Environment steps of summed rewards before bootstrapping, after each unrolled step."""
    discount: Discount
    """Discount per environment step."""

    @property
    def window_steps(self) -> int:
        """Number of environment steps that a row looks ahead: W."""
        return self.unroll_steps + self.n_step


class Sequences(Section):
    """A row is `slots` consecutive time steps of one environment, for recurrent networks with replay (Kapturowski et
    al. 2019): `burn_in_steps` to bring the state of the network up to date, then `sequence_steps` to learn from, then
    `n_step` - 1 steps for the rewards of the last of them. Rows of an environment begin every `period_slots` steps, and
    overlap by `overlap_steps` of the steps to learn from. Columns: docs/algorithms.md#sequences."""

    kind: Literal["sequences"] = "sequences"
    """Name of this row shape."""
    burn_in_steps: Annotated[int, Field(ge=0, le=10_000)]
    """Time steps before the steps to learn from."""
    sequence_steps: Horizon
    """Time steps to learn from."""
    overlap_steps: Annotated[int, Field(ge=0, le=1_000_000)]
    """Steps to learn from that the next row of the environment repeats."""
    n_step: NSteps
    """Environment steps of summed rewards before bootstrapping."""
    discount: Discount
    """Discount per environment step."""

    @property
    def slots(self) -> int:
        """L: time steps in a row."""
        return self.burn_in_steps + self.sequence_steps + self.n_step - 1

    @property
    def period_slots(self) -> int:
        """Time steps from the beginning of a row to the beginning of the next row."""
        return self.sequence_steps - self.overlap_steps

    @model_validator(mode="after")
    def _rows_move_on(self) -> Sequences:
        if self.overlap_steps >= self.sequence_steps:
            raise ValueError(
                f"overlap_steps ({self.overlap_steps}) must be less than sequence_steps ({self.sequence_steps}), or "
                "sequences would never move on"
            )
        return self


RowShape = Steps | Segments | Unrolls | Sequences


class ReanalyzedColumns(Section):
    """Columns of stored rows that can be recomputed with a newer policy (Reanalyse, Schrittwieser et al. 2021)."""

    columns: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_NAMES)]
    """Columns returned by `Reanalyzer.compute`, all of them in `Policy.recorded`."""
    share: Fraction
    """Number of recomputed rows per row drawn for a batch; 0 recomputes nothing."""


class Declaration(Section):
    """Rows, metrics and exploration of an algorithm."""

    rows: Annotated[RowShape, Field(discriminator="kind")]
    """Shape of one row of experience."""
    reuse: Literal["replay", "once"]
    """Use of a row. `replay`: a row is learned from every time it is drawn. `once`: one update uses up the row, for
    on-policy algorithms."""
    monitored: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMES)]
    """Names of the metrics returned by `learn`, in the order of the logs. The logs show averages."""
    with_statistics: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMES)] = ()
    """Monitored metrics with five statistics in the logs, for example losses, gradient norms and values. Besides the
    average the logs show `<metric>_std`, `_max`, `_min` and `_median`."""
    loss_columns: Annotated[dict[Name, Name], Field(max_length=MOST_NAMES)] = {}  # noqa: RUF012  (pydantic copies it)
    """Column of progress.txt -> the metric shown there by its average, or by another statistic of a metric in
    `with_statistics`: `total_loss`, `total_loss_max`."""
    exploration: Annotated[dict[Name, Schedule], Field(max_length=MOST_NAMES)] = {}  # noqa: RUF012
    """Arguments of `Policy.act`, by name, as schedules over accepted environment steps; a restarted run continues at
    its step. Empty for policies that are distributions themselves."""
    self_play: bool = False
    """True if the policy moves for all sides. The mean return of an evaluation then does not measure strength, and the
    newest evaluated checkpoint counts as the best."""
    learns_from_parts: bool = False
    """True if `learn` accepts a part of each batch, in several ranks that learn together; see `Algorithm.ranks`.
    Required for `learner.ranks` above 1."""
    lowers_products: bool = False
    """True if the networks follow `learner.precision`, by `Algorithm.products`. Required for bfloat16."""
    collected: Annotated[tuple[CollectedName, ...], Field(max_length=MOST_COLLECTED)] = ()
    """Names of the metrics returned by `Policy.collected_metrics`. The collectors' logs and curves, progress.txt and
    the sinks show means over the steps collected since the last report."""
    reanalyzed: ReanalyzedColumns | None = None
    """Columns that reanalyzers may recompute; only with `reuse` replay."""

    @model_validator(mode="after")
    def _columns_show_what_is_monitored(self) -> Declaration:
        if lost := [metric for metric in self.with_statistics if metric not in self.monitored]:
            raise ValueError(f"with_statistics names what is not in monitored: {', '.join(lost)}")
        told = self.told
        unknown = [f"{column}: {metric}" for column, metric in self.loss_columns.items() if metric not in told]
        if unknown:
            raise ValueError(f"loss_columns show what is not in monitored: {', '.join(unknown)}")
        return self

    @model_validator(mode="after")
    def _collected_metrics_have_names_of_their_own(self) -> Declaration:
        names = self.collected
        taken = [name for name in names if name in IN_COLLECTORS_LOG or name in self.loss_columns]
        if taken or len(set(names)) < len(names):
            raise ValueError(f"collected names what logs or progress.txt have already: {', '.join(taken or names)}")
        return self

    @model_validator(mode="after")
    def _reanalyzed_rows_are_replayed(self) -> Declaration:
        if self.reanalyzed is not None and self.reuse != "replay":
            raise ValueError("reanalyzed needs reuse 'replay': a row that is used once is never read again")
        return self

    @property
    def told(self) -> tuple[str, ...]:
        """Names of all numbers reported by a learner: the averages, then the further statistics."""
        others = tuple(f"{metric}_{statistic}" for metric in self.with_statistics for statistic in BESIDES_MEAN)
        return (*self.monitored, *others)

    def exploration_at(self, env_step: int) -> dict[str, float]:
        """Return the arguments of `Policy.act` after this number of accepted environment steps."""
        return {name: value_at(schedule, env_step) for name, schedule in self.exploration.items()}

    @property
    def least_exploration(self) -> Mapping[str, float]:
        """Return the final values of the schedules; also used by runs without learning."""
        return {name: schedule[-1][1] for name, schedule in self.exploration.items()}
