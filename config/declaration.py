"""What the roles know of an algorithm without running it. It is data: the coordinator never imports a user's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from remuda.config.numbers import MOST_COLLECTED, Discount, Fraction, Horizon, NSteps, UnrollSteps
from remuda.config.section import Schedule, Section, value_at

MOST_NAMES = 200
"""Columns, metrics and schedules of an algorithm: every log row and every checkpoint holds them."""
BESIDES_MEAN = ("std", "max", "min", "median")
"""The other four of the five statistics that logs show."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_./-]{0,99}$")]
CollectedName = Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9_]{0,99}$")]
"""Of a collected metric, which is a column of progress.txt, too: those that are always there begin with a capital."""
IN_COLLECTORS_LOG = frozenset({
    "train_iter", "episode_count", "envstep_count", "train_sample_count", "step_count", "collect_time", "each_reward",
    "avg_envstep_per_episode", "avg_sample_per_episode", "avg_envstep_per_sec", "avg_train_sample_per_sec",
    "avg_episode_per_sec", "avg_step_per_episode", "avg_time_per_step", "avg_time_per_episode",
    "total_envstep_count", "total_train_sample_count", "total_episode_count", "total_duration",
    *(f"{name}_{of}" for name in ("reward", "length", "discounted_return") for of in ("mean", *BESIDES_MEAN)),
})  # fmt: skip
"""What the log of a collector, or the commander's of collectors, always shows under these names."""


class Steps(Section):
    """A row is one transition over `n_step` environment steps. A batch of B rows has the columns

    obs       [B, …]
    action    [B, …]  int64 where the action space is Discrete, float32 where it is a Box
    reward    [B]     float32: the rewards on the way, summed at `discount`
    next_obs  [B, …]
    discount  [B]     float32: discount ** steps; 0 where the episode terminated, not where it was truncated
    weights   [B]     float32: importance weights of prioritized replay, else 1

    Observations are float32 where their space is of floats (but see Actor.keeps_float64) and of the space's dtype
    elsewhere. Rows of all shapes have one column more if the policy carries a state (Actor.state_size):

    state     [B, size]  float32: before the first observation

    Where environments say which actions are legal, and the policy is told (Actor.uses_legal_actions), steps, segments
    and sequences have that too, of each observation (segments [B, T + 1, actions], sequences [B, L + 1, actions]):

    legal       [B, actions]  bool: in obs; there is always one
    next_legal  [B, actions]  bool: in next_obs; all where the episode ended there without any
    """

    kind: Literal["steps"] = "steps"
    """Tells it from the others."""
    n_step: NSteps
    """Environment steps whose rewards are summed before bootstrapping."""
    discount: Discount
    """Discount per environment step."""


class Segments(Section):
    """A row is T = `horizon_steps` consecutive time steps of one environment. A batch of B rows has the columns

    obs         [B, T + 1, …]  [:, t] is what the action of step t saw, [:, t + 1] what was seen after it (the true last
                               observation where the step ended an episode)
    action      [B, T, …]      as recorded; a Box's may lie outside its bounds
    reward      [B, T]         float32
    terminated  [B, T]         bool: the episode ended in the step, and nothing would have followed
    done        [B, T]         bool: it ended in the step, terminated or truncated
    valid       [B, T]         bool: a step; False where the environment was reset after a done
    version     [B]            int64: of the policy that acted
    return_so_far [B]          float32: discounted sum of the episode's rewards before the segment
    weights     [B]            float32: always 1

    and what `Policy.recorded` names, [B, T, …].
    """

    kind: Literal["segments"] = "segments"
    """Tells it from the others."""
    horizon_steps: Horizon
    """Steps of one environment in a segment."""
    discount: Discount
    """Discount per environment step."""


class Unrolls(Section):
    """A row is one environment step with what follows it in its episode, for algorithms that unroll a learned model
    (Schrittwieser et al. 2020): K = `unroll_steps` steps of the model, each with a return over `n_step` steps. The row
    looks W = K + `n_step` steps ahead. A batch of B rows has the columns

    obs         [B, W + 1, …]  [:, k] is what the action of step k saw, [:, k + 1] what was seen after it
    action      [B, K, …]      int64 where the action space is Discrete, float32 where it is a Box
    reward      [B, W]         float32: of each step
    steps       [B]            int32: the steps of the episode that the row holds, 1 … W
    terminated  [B]            bool: the episode terminated with the last of them; False where it was truncated, where
                               it goes on, and where nothing more of it was collected
    weights     [B]            float32: importance weights of prioritized replay, else 1

    and what `Policy.recorded` names, [B, K + 1, …]: of the steps 0 … K. From step `steps` on there is nothing more: obs
    repeats the last observation (the true last one where the episode ended), and actions, rewards and what was recorded
    are 0. There is one row for each environment step.
    """

    kind: Literal["unrolls"] = "unrolls"
    """Tells it from the others."""
    unroll_steps: UnrollSteps
    """Steps that the model is unrolled, whose actions a row holds."""
    n_step: NSteps
    """Environment steps whose rewards are summed before bootstrapping, after each unrolled step."""
    discount: Discount
    """Discount per environment step."""

    @property
    def window_steps(self) -> int:
        """W: environment steps that a row looks ahead."""
        return self.unroll_steps + self.n_step


class Sequences(Section):
    """A row is L = `slots` consecutive time steps of one environment, for recurrent networks that replay (Kapturowski
    et al. 2019): `burn_in_steps` that only bring the network's state up to date, then `sequence_steps` to learn from,
    then `n_step` - 1 whose rewards the last of them need. Rows of an environment begin every `period_slots` steps, so
    the parts to learn from overlap by `overlap_steps`. A batch of B rows has the columns

    obs         [B, L + 1, …]  [:, t] is what the action of step t saw, [:, t + 1] what was seen after it (the true last
                               observation where the step ended an episode)
    action      [B, L, …]      as recorded
    reward      [B, L]         float32
    terminated  [B, L]         bool: the episode ended in the step, and nothing would have followed
    done        [B, L]         bool: it ended in the step, terminated or truncated
    valid       [B, L]         bool: a step; False where the environment was reset: the step after is the first of an
                               episode, and the policy's state before it was 0
    weights     [B]            float32: importance weights of prioritized replay, else 1

    and what `Policy.recorded` names, [B, L, …].
    """

    kind: Literal["sequences"] = "sequences"
    """Tells it from the others."""
    burn_in_steps: Annotated[int, Field(ge=0, le=10_000)]
    """Time steps before those to learn from."""
    sequence_steps: Horizon
    """Time steps to learn from."""
    overlap_steps: Annotated[int, Field(ge=0, le=1_000_000)]
    """Of those, the steps that the next row of the environment learns from, too."""
    n_step: NSteps
    """Environment steps whose rewards are summed before bootstrapping."""
    discount: Discount
    """Discount per environment step."""

    @property
    def slots(self) -> int:
        """L: time steps in a row."""
        return self.burn_in_steps + self.sequence_steps + self.n_step - 1

    @property
    def period_slots(self) -> int:
        """Time steps from the beginning of a row to that of the next."""
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
    """Columns of stored rows that can be computed again with a newer policy (Reanalyse, Schrittwieser et al. 2021)."""

    columns: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MOST_NAMES)]
    """What `Reanalyzer.compute` returns: columns that `Policy.recorded` names."""
    share: Fraction
    """How many rows to compute again for each row that is drawn for a batch; 0: none."""


class Declaration(Section):
    """What an algorithm learns from, reports, and how it explores."""

    rows: Annotated[RowShape, Field(discriminator="kind")]
    """What one row of experience is."""
    reuse: Literal["replay", "once"]
    """How often a row is learned from. `replay`: as often as it is drawn. `once`: it is used up by one update, as
    on-policy algorithms want it."""
    monitored: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMES)]
    """Names of the metrics that `learn` returns, in the order the logs show them. Each is averaged."""
    with_statistics: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMES)] = ()
    """Those of them that logs show with five statistics, such as losses, gradient norms and values. Besides the average
    they are `<metric>_std`, `_max`, `_min` and `_median`."""
    loss_columns: Annotated[dict[Name, Name], Field(max_length=MOST_NAMES)] = {}  # noqa: RUF012  (pydantic copies it)
    """Column of progress.txt -> the metric whose average it shows, or another statistic of one in `with_statistics`:
    `total_loss`, `total_loss_max`."""
    exploration: Annotated[dict[Name, Schedule], Field(max_length=MOST_NAMES)] = {}  # noqa: RUF012
    """What `Policy.act` is given, by name, as a schedule over accepted environment steps: a restarted run goes on where
    it was. None for policies that are distributions themselves."""
    self_play: bool = False
    """The policy makes the moves of all sides, so the mean return of an evaluation does not say how well it plays: of
    the checkpoints that were evaluated the newest counts as the best."""
    learns_from_parts: bool = False
    """`learn` may be given a part of each batch, in each of several ranks that learn together; see `Algorithm.ranks`.
    Needed for `learner.ranks` above 1."""
    lowers_products: bool = False
    """`learner.precision` reaches its networks: its learning side has `Algorithm.products`. Needed for bfloat16."""
    collected: Annotated[tuple[CollectedName, ...], Field(max_length=MOST_COLLECTED)] = ()
    """Names of the metrics that `Policy.collected_metrics` returns. The collectors' logs and curves, progress.txt and
    the sinks show the mean of each over the steps that were collected since the last report."""
    reanalyzed: ReanalyzedColumns | None = None
    """What workers of the role reanalyzer may compute again; only with `reuse` replay."""

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
        """Names of all numbers that a learner reports: the averages, then the other statistics."""
        others = tuple(f"{metric}_{statistic}" for metric in self.with_statistics for statistic in BESIDES_MEAN)
        return (*self.monitored, *others)

    def exploration_at(self, env_step: int) -> dict[str, float]:
        """What `Policy.act` is given after so many accepted environment steps."""
        return {name: value_at(schedule, env_step) for name, schedule in self.exploration.items()}

    @property
    def least_exploration(self) -> Mapping[str, float]:
        """What the schedules end at; also for runs that do not learn."""
        return {name: schedule[-1][1] for name, schedule in self.exploration.items()}
