"""The settings of collectors, evaluators and reanalyzers, of their cores, and of how long they may be silent."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from remuda.config.numbers import (
    MOST_EVALUATION_EPISODES,
    Cores,
    Kwargs,
    NonNegative,
    Positive,
    PositiveFloat,
    Workers,
    no_bool,
    or_auto,
)
from remuda.config.section import Section


class CollectorConfig(Section):
    """How experience is gathered."""

    count: Annotated[Workers, or_auto(100_000)] = 2
    """Collectors that the experiment asks for (serial mode has one). With `auto`, also for `env.num_envs` and
    `learner.threads`, `remuda train` and `remuda launch` measure on this machine, before the run begins, what a step,
    an action and an update cost. They take the fewest processes and environments with which the run is nearly as fast
    as it can be. The log has the numbers and what was measured. How much an update learns from does not change: see
    `learner.segments_per_update`. A resumed run keeps its numbers."""
    minimum: Workers = 1
    """The experiment starts when this number of collectors is free. Collectors beyond it are lent to experiments of the
    same or a higher priority that wait for their own minimum."""
    chunk_env_steps: Annotated[int, Field(gt=0, le=10_000_000), BeforeValidator(no_bool)] | None = None
    """Environment steps per chunk, rounded up to whole steps of all environments of a collector. With small chunks
    collectors get new policies sooner; large ones cost fewer messages. Null is 64. In parallel mode without
    buffer.samples_per_insert, where collectors run at full speed, null is 512 steps of each environment or 0.1 s,
    whichever is less. On-policy chunks have policy.horizon_steps steps of each environment."""
    device: str = "cpu"
    """Where a collector computes actions: cpu, or a GPU (cuda, cuda:1) for large networks. With a GPU, give one
    collector many environments in processes (env.num_envs, env.vectorization: async): the actions for all of them are
    computed as one batch."""

    @model_validator(mode="after")
    def _minimum_is_within_count(self) -> CollectorConfig:
        if self.minimum > self.count:
            raise ValueError(f"minimum ({self.minimum}) is more than count ({self.count}): it would never start")
        return self


class EvaluatorEnvConfig(Section):
    """What is different in the environment that evaluations are played on; see `env`."""

    id: str | None = None
    """Another environment, by its id; null is that of `env`."""
    make: str | None = None
    """Another environment, by `module:function`; null is that of `env`."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Arguments that take the place of those of the same name in `env.kwargs` (and of a task of `env.schedule`), or
    stand beside them. With an `id` or `make` these are all arguments."""
    max_episode_steps: Positive | None = None
    """Episodes are truncated after this number of steps; null is as in `env`, and with an `id` or `make` the
    environment's own limit."""

    @model_validator(mode="after")
    def _one_source_at_most(self) -> EvaluatorEnvConfig:
        if self.id is not None and self.make is not None:
            raise ValueError("give at most one of evaluator.env.id and evaluator.env.make")
        if self.make is not None and self.make.count(":") != 1:
            raise ValueError(f"evaluator.env.make must look like module:function, not {self.make!r}")
        return self


class EvaluatorConfig(Section):
    """How the policy is evaluated."""

    count: Workers = 1
    """Evaluators that the experiment asks for (serial mode has one)."""
    episodes: Annotated[NonNegative, Field(le=MOST_EVALUATION_EPISODES)] = 5
    """Episodes per evaluation, shared between the evaluators; their seeds are the same at every evaluation. With 0
    there are no evaluations, and the newest training episodes decide which checkpoint is the best (see
    `window_episodes`)."""
    max_episode_steps: Positive = 30_000
    """Evaluation episodes are cut after this number of steps, with a warning, since an environment without its own
    limit may never end. The longest Atari games have 27,000 steps."""
    interval_env_steps: Positive = 5_000
    """Environment steps between evaluations. The first evaluation plays the initial policy at env_step 0."""
    env: EvaluatorEnvConfig | None = None
    """Evaluations are played on another environment than training, with the same observations and actions: other
    levels, say, or without a shaped reward. Also `remuda evaluate` plays on it. {kwargs: {…}} changes arguments of
    `env`; an `id` or `make`, with the `kwargs` of that, is another environment; `max_episode_steps` truncates its
    episodes. Null is `env`."""
    window_episodes: Positive = 100
    """Only if `episodes` is 0: the mean return of this number of newest training episodes takes the place of an
    evaluation, also for the best checkpoint and stop.stop_value. These episodes explore. There is no value before
    there are that many."""


class ReanalyzerConfig(Section):
    """Workers that compute columns of stored rows again with the target network, in place of the learner: Reanalyse of
    MuZero (`policy.reanalyze_ratio`). Parallel mode only; in serial mode the learner does it."""

    count: Annotated[int, Field(ge=0, le=100_000), BeforeValidator(no_bool)] = 0
    """Reanalyzers that the experiment asks for. With 0 the learner does it, as part of each update. Otherwise the
    learner computes nothing again, and `policy.reanalyze_ratio` is how many rows reanalyzers compute again for each row
    that is drawn, at most: they draw chunks as batches are drawn, and compute a chunk once for each target network. The
    experiment starts without them and takes free ones as they come; while it has none nothing is computed again."""
    device: str = "cpu"
    """Where a reanalyzer computes: a torch device."""


class AffinityConfig(Section):
    """Core numbers for each role. Cores that a process may not use are left out."""

    learner: Cores | None = None
    """The learner runs on these, with one torch thread per core, four at most; null is every core, with one thread."""
    collector: Cores | None = None
    """Each collector runs on one of these, in turn."""
    evaluator: Cores | None = None
    """Each evaluator runs on one of these, in turn."""
    reanalyzer: Cores | None = None
    """Each reanalyzer runs on one of these, in turn."""


class LimitsConfig(Section):
    """Time limits, without any progress, for slow steps of a worker. A worker that takes longer is dismissed: its
    process ends and is started again, and the run counts a failure. In any other work a worker is dismissed after two
    minutes without progress (see `remuda coordinator --limit`). Parallel mode only."""

    prepare_s: PositiveFloat = 1_800.0
    """Seconds for building environments and networks, and for loading a checkpoint or a policy. Each file of replay
    that is loaded counts as progress."""
    save_s: PositiveFloat = 1_800.0
    """Seconds for saving a checkpoint, and for an on-policy learner that waits until its policy is published. The end
    of a run waits this long for the last checkpoint."""
    rank_s: PositiveFloat = 60.0
    """Seconds that one learner rank waits for another in an update. Then the learner has failed, and starts again from
    the last checkpoint. Less than the two minutes above, or the learner is dismissed without this reason."""
