"""The settings of the environment."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from remuda.config.section import Float, Kwargs, NonNegative, Positive, PositiveFloat, Section, no_bool, or_auto

MOST_STAGES = 1_000
AgentName = Annotated[str, Field(min_length=1, max_length=200)]


class TaskStage(Section):
    """A later task of a curriculum: its condition to begin, and the changed arguments of the environment."""

    env_step: Positive | None = None
    """The task begins after this number of environment steps of the run. Give exactly one of `env_step` and
    `mean_return`."""
    mean_return: Float | None = None
    """The task begins when an evaluation on the task before has at least this mean return; with several policies, the
    mean of all policies."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Arguments that replace or extend `env.kwargs` in this task. Later tasks do not inherit them."""

    @model_validator(mode="after")
    def _exactly_one_condition(self) -> TaskStage:
        if (self.env_step is None) == (self.mean_return is None):
            raise ValueError("give exactly one of env_step and mean_return: when the task begins")
        return self


class EnvConfig(Section):
    """The environment, and the number of copies that a collector steps at once."""

    id: str | None = None
    """A gymnasium id, for example CartPole-v1. Give exactly one of `id` and `make`."""
    make: str | None = None
    """Your own environment: `module:function`. The module is looked up in the folder of the config file first; the
    function is called with `kwargs` and returns a gymnasium.Env or a dm_env.Environment."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments for the environment's constructor, or for your own function."""
    num_envs: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool), or_auto(10_000)] = 8
    """Environments that a collector steps together. `auto`: see `collector.count`."""
    vectorization: Literal["auto", "native", "sync", "async", "envpool"] = "auto"
    """Way of stepping the environments of a collector. `native`: the environment's own vectorised class. `sync`:
    objects in one process. `async`: one process per core. `envpool`: threads of the package envpool (`pip install
    'remuda[envpool]'`), which implements many of gymnasium's environments; the same seed gives different episodes
    there. `auto` takes `native` if the id has a vectorised class. For four or more environments of gymnasium's classic
    control, Box2D or MuJoCo without `kwargs`, `auto` takes `envpool` if installed. Otherwise `auto` times a few steps,
    and takes processes if processes would be faster with all collectors on one machine."""
    kind: Literal["gymnasium", "pettingzoo"] = "gymnasium"
    """Library of the environment: `gymnasium`, or `pettingzoo` for PettingZoo's parallel environments, where several
    agents act at the same time or take turns. With `pettingzoo`, `id` is a module with `parallel_env` or `env`, such as
    pettingzoo.butterfly.cooperative_pong_v6, and your own function (`make`) returns a pettingzoo.ParallelEnv."""
    agents: Annotated[tuple[AgentName, ...], Field(max_length=10_000)] = ()
    """Agents of an environment with several agents, in the environment's order. Parallel mode fills in this list when
    the run is submitted, by building the environment once; a given value is replaced."""
    max_episode_steps: Positive | None = None
    """Episodes are truncated after this number of steps; null keeps the environment's own limit."""
    episode_info: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,49}$")], ...] = ()
    """Keys of numbers in `info` at the last step of an episode. The logs show these numbers like returns: mean,
    deviation, median, maximum and minimum over episodes."""
    restarts_per_hour: Annotated[NonNegative, Field(le=1_000_000)] = 20
    """Environments that a collector or evaluator may rebuild within an hour. An environment is rebuilt after raising an
    error, hanging, ending its process, or returning NaN, infinity, or observations of a wrong shape or type. The
    remaining environments continue; the current episode is truncated before the bad step. The worker fails beyond this
    limit, or if one environment breaks three times in a row without a good step; with 0 the worker fails at the first
    break. Vectorised classes (`native`, `envpool`) are never rebuilt."""
    step_timeout_s: PositiveFloat | None = 90.0
    """Seconds for one step or reset of an environment in a separate process (`vectorization: async`). After this time
    the process is killed and restarted with all of its environments. A collector without progress is dismissed after
    two minutes; with null only this second limit applies."""
    build_timeout_s: PositiveFloat | None = 600.0
    """Seconds for building the environments of a separate process (`vectorization: async`), with the start of the
    process. After this time the process is killed, and the run or its worker ends with an error; null waits without
    limit. A process that builds environments for itself ends by the same limit, and prints the stacks: `remuda train`,
    the check before `launch` and `submit`, and workers without `async`."""
    schedule: Annotated[tuple[TaskStage, ...], Field(max_length=MOST_STAGES)] = ()
    """A curriculum: the tasks after the first task, in order; the first task is this section without changes. A task
    begins at `env_step`, or when an evaluation on the task before reaches `mean_return`; the task's `kwargs` replace or
    extend `env.kwargs`: [{env_step: 50000, kwargs: {size: 8}}, {mean_return: 0.9, kwargs: {size: 16}}]. All tasks have
    the same observations and actions. The best checkpoint is chosen separately in every task. See callbacks.md."""

    @field_validator("episode_info")
    @classmethod
    def _columns_of_their_own(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        taken = {"reward", "length", "epret", "eplen", "testepret", "testeplen"}
        taken |= {"discountedreturn", "testdiscountedreturn"}
        for name in names:
            column = name.replace("_", "").lower()
            if column in taken:
                raise ValueError(f"{name!r} is given twice, or is the name of a column that is always logged")
            taken |= {column, f"test{column}"}
        return names

    @field_validator("schedule")
    @classmethod
    def _in_order(cls, stages: tuple[TaskStage, ...]) -> tuple[TaskStage, ...]:
        steps = [stage.env_step for stage in stages if stage.env_step is not None]
        for before, after in pairwise(steps):
            if after <= before:
                raise ValueError(f"env_step {after} comes after env_step {before}: put the tasks in their order")
        return stages

    @model_validator(mode="after")
    def _exactly_one_source(self) -> EnvConfig:
        if (self.id is None) == (self.make is None):
            raise ValueError("give exactly one of env.id (a gymnasium id) and env.make (module:function)")
        if self.make is not None and self.make.count(":") != 1:
            raise ValueError(f"env.make must look like module:function, not {self.make!r}")
        if self.kind == "pettingzoo" and self.vectorization in ("native", "envpool"):
            raise ValueError(
                f"env.vectorization is {self.vectorization}, which environments with several agents do not have: set "
                "it to auto, sync or async"
            )
        return self
