"""The settings of the environment."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from remuda.config.numbers import Float, Kwargs, NonNegative, Positive, PositiveFloat, no_bool, or_auto
from remuda.config.section import Section

MOST_STAGES = 1_000
AgentName = Annotated[str, Field(min_length=1, max_length=200)]


class TaskStage(Section):
    """A later task of a curriculum: when it begins, and what is different in it."""

    env_step: Positive | None = None
    """It begins once the run has had this number of environment steps. Give exactly one of `env_step` and
    `mean_return`."""
    mean_return: Float | None = None
    """It begins once an evaluation on the task before it has at least this mean return, with several policies those of
    all of them."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Arguments that take the place of those of the same name in `env.kwargs`, or stand beside them. They say nothing
    about the tasks after it."""

    @model_validator(mode="after")
    def _exactly_one_condition(self) -> TaskStage:
        if (self.env_step is None) == (self.mean_return is None):
            raise ValueError("give exactly one of env_step and mean_return: when the task begins")
        return self


class EnvConfig(Section):
    """Which environment, and how many copies each collector steps at once."""

    id: str | None = None
    """A gymnasium id such as CartPole-v1. Give exactly one of `id` and `make`."""
    make: str | None = None
    """Your own environment: `module:function`. The module is looked up in the folder of the config file first; the
    function is called with `kwargs` and returns a gymnasium.Env."""
    kwargs: Kwargs = {}  # noqa: RUF012  (pydantic copies it)
    """Keyword arguments for the environment's constructor, or for your own function."""
    num_envs: Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool), or_auto(10_000)] = 8
    """Environments that each collector steps together. `auto`: see `collector.count`."""
    vectorization: Literal["auto", "native", "sync", "async", "envpool"] = "auto"
    """How the environments of a collector are stepped: `native` uses the environment's own vectorised class, `sync`
    objects in one process, `async` one process per core, `envpool` the threads of that package (`pip install
    'remuda[envpool]'`), which has many of gymnasium's environments; the same seed then gives other episodes. `auto`
    takes native if the id has one; envpool, if it is installed, for four and more of gymnasium's own classic control,
    Box2D and MuJoCo without `kwargs`. Otherwise it times a few steps, and takes processes if they would be faster
    with all collectors on one machine."""
    kind: Literal["gymnasium", "pettingzoo"] = "gymnasium"
    """What `id` or `make` names: an environment of gymnasium, or with `pettingzoo` one of PettingZoo's parallel
    environments, in which several agents act at the same time. Then `id` is the module that has `parallel_env`, such as
    pettingzoo.butterfly.cooperative_pong_v6, and your own function (`make`) returns a pettingzoo.ParallelEnv."""
    agents: Annotated[tuple[AgentName, ...], Field(max_length=10_000)] = ()
    """The agents of an environment with several, in its order. In parallel mode this is filled in when the run is
    submitted, for which the environment is built once; whatever is given here is replaced."""
    max_episode_steps: Positive | None = None
    """Episodes are truncated after this number of steps; null keeps the environment's own limit."""
    episode_info: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,49}$")], ...] = ()
    """Keys of numbers that the environment puts into `info` at the last step of an episode. They are logged like
    returns: mean, deviation, median, maximum and minimum over episodes."""
    restarts_per_hour: Annotated[NonNegative, Field(le=1_000_000)] = 20
    """How many environments each collector and evaluator makes again within an hour because they raised an error, hung,
    ended their process, or returned NaN, infinity, or observations of another shape or type than their space says. The
    other environments go on; the episode that was under way is truncated before the bad step. Beyond that, or if one
    breaks three times in a row without a good step, the worker fails; with 0 it does so at once. Environments with a
    vectorised class of their own (`native`, `envpool`) are not made again."""
    step_timeout_s: PositiveFloat | None = 90.0
    """Seconds that one step or reset of an environment in a process of its own may take (`vectorization: async`); then
    its process is killed and started again, with all environments in it. A collector without any progress is dismissed
    after two minutes. With null only that limit is left."""
    schedule: Annotated[tuple[TaskStage, ...], Field(max_length=MOST_STAGES)] = ()
    """A curriculum: the tasks after the first, which is this section itself, in their order. A task begins at
    `env_step`, or once an evaluation on the task before it has a `mean_return` of at least so much; its `kwargs` take
    the place of those of the same name above, or stand beside them: [{env_step: 50000, kwargs: {size: 8}},
    {mean_return: 0.9, kwargs: {size: 16}}]. All tasks have the same observations and actions. With a new task a new
    best checkpoint begins. See curriculum.md."""

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
        if self.kind == "pettingzoo" and self.vectorization not in ("auto", "sync"):
            raise ValueError(
                f"env.vectorization is {self.vectorization}, and environments with several agents are stepped in one "
                "process: leave it out"
            )
        return self
