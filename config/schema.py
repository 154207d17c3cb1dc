"""The settings of a run, with defaults, units and consequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from remuda.config.algorithms.registry import DEFAULT, PolicyConfig
from remuda.config.defaults import as_offline, with_defaults, with_sections_above
from remuda.config.environment import EnvConfig
from remuda.config.launching import LaunchConfig
from remuda.config.learning import (
    MOST_POLICIES,
    OPTIMIZER,
    AgentsPolicyConfig,
    BufferConfig,
    LeagueConfig,
    LearnerConfig,
    PolicyName,
    SelfPlayConfig,
)
from remuda.config.section import LARGEST_CAPACITY, NonNegative, Section
from remuda.config.workers import (
    AffinityConfig,
    Callbacks,
    CheckpointConfig,
    CollectorConfig,
    EvaluatorConfig,
    InferenceConfig,
    LimitsConfig,
    LogConfig,
    ReanalyzerConfig,
    SharedInference,
    StopConfig,
    StorageConfig,
    shared_inference,
)


class ExperimentConfig(Section):
    """All settings of one run, for serial and parallel mode alike."""

    model_config = ConfigDict(defer_build=False)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the run and, without --run-dir and --run-id, of the run folder."""
    seed: NonNegative = 0
    """Seed from which the seeds of all workers, environments and networks are derived."""
    env: EnvConfig
    """The environment."""
    policy: PolicyConfig = DEFAULT
    """The algorithm and its networks. `type` selects the algorithm (default: dqn), and with the
    algorithm the settings."""
    policies: Annotated[dict[PolicyName, AgentsPolicyConfig], Field(max_length=MOST_POLICIES)] = {}  # noqa: RUF012
    """Several policies by name, with env.kind pettingzoo: the agents and the learning of each policy. Every policy has
    a separate learner, checkpoints (`ckpt/<name>/`), logs and curves. Without `policies` all agents share `policy`."""
    self_play: SelfPlayConfig = SelfPlayConfig()
    """Training against older checkpoints."""
    learner: LearnerConfig = LearnerConfig()
    """Updates and publishing."""
    collector: CollectorConfig = CollectorConfig()
    """Collecting experience."""
    evaluator: EvaluatorConfig = EvaluatorConfig()
    """Evaluating the policy."""
    reanalyzer: ReanalyzerConfig = ReanalyzerConfig()
    """Computing stored rows again."""
    inference: InferenceConfig = InferenceConfig()
    """Computing the actions of many collectors together."""
    buffer: BufferConfig = BufferConfig()
    """Replay."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    storage: StorageConfig = StorageConfig()
    """Copies in an object store."""
    stop: StopConfig = StopConfig()
    """Stop conditions."""
    log: LogConfig = LogConfig()
    """Logs."""
    callbacks: Callbacks = ()
    """Your own code, called at evaluations, checkpoints, training episodes, the start and the end. Callbacks may log
    numbers, change settings and end the run: a list of `module:Class`, or of {make: "module:Class", kwargs: {…}}. The
    module is looked up in the folder of the config file first, and runs in the process of the learner. See
    callbacks.md."""
    limits: LimitsConfig = LimitsConfig()
    """Time limits of workers."""
    launch: LaunchConfig = LaunchConfig()
    """The launcher of `remuda launch`."""
    affinity: Literal["auto", "none"] | AffinityConfig = "none"
    """Cores of the processes. `none` leaves the choice to the operating system. `auto` gives every process of the run a
    core of its own, and the remaining cores to the learner, if the machine has enough cores; use `auto` on machines
    with one run at a time. Or name cores by role: {learner: [0, 1], collector: [2, 3]}."""
    project: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")] = ""
    """Project to which the run is charged: a group of `remuda report --by project`, and an account of `remuda quota
    set`. See bill.md."""
    preemptible: bool = False
    """Gives all workers to a waiting experiment of higher priority that lacks workers: collectors hand in, learners
    save, and the run waits in the queue and continues later. Parallel mode only."""
    source_dir: str | None = None
    """Folder of the config file, set at loading; `env.make` is looked up there."""

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, value: object) -> object:
        return as_offline(with_defaults(with_sections_above(value)))

    @field_validator("policy", mode="before")
    @classmethod
    def _default_unless_told(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {"type": DEFAULT.type} | cast("dict[str, object]", value)

    @model_validator(mode="after")
    def _fits_together(self) -> ExperimentConfig:
        replays = self.policy.segment_steps is None
        if replays and self.buffer.min_rows > self.buffer.capacity:
            raise ValueError(
                f"buffer.min_rows ({self.buffer.min_rows}) is more than buffer.capacity ({self.buffer.capacity}): "
                "training would never start; lower buffer.min_rows"
            )
        if self.reanalyzer.count and all(one.reanalyzed_share is None for one in self._algorithms):
            types = ", ".join({one.type: None for one in self._algorithms})
            raise ValueError(
                f"reanalyzer.count is {self.reanalyzer.count}, and policy.type {types} has nothing to "
                "compute again: set it to 0"
            )
        if self.policy.segment_steps is not None:
            self._check_segments(self.policy.segment_steps)
        if self.collector.dataset is not None:
            self._check_offline(replays=replays)
        if self.learner.ranks > 1:
            self._check_ranks()
            if self.buffer.demonstrations is not None:
                raise ValueError(
                    "buffer.demonstrations are for a single rank: set learner.ranks to 1, or leave them out"
                )
        if self.learner.precision == "bfloat16" and not self.policy.lowers_products:
            has_own = "precision" in type(self.policy).model_fields
            own = "set policy.precision instead" if has_own else "leave it out"
            raise ValueError(
                f"learner.precision is bfloat16, which does not reach the networks of policy.type {self.policy.type}: "
                f"{own}"
            )
        if self.env.kind == "pettingzoo" or self.policies or self.self_play.share or self.self_play.league:
            self._check_several_agents()
        return self

    def _check_offline(self, *, replays: bool) -> None:
        if self.env.kind == "pettingzoo" or not replays:
            who = "several agents" if replays else f"policy.type {self.policy.type}, which learns on-policy,"
            raise ValueError(
                f"collector.dataset: {who} cannot learn from a dataset; dqn, rainbow, sac, td3, crossq and iql can"
            )

    @property
    def _algorithms(self) -> Sequence[PolicyConfig]:
        return [one.policy for one in self.policies.values()] or [self.policy]

    @property
    def reanalyzers(self) -> int:
        """Reanalyzers in parallel mode; 0 if all shares of rows to compute again are 0."""
        return self.reanalyzer.count if any(one.reanalyzed_share for one in self._algorithms) else 0

    @property
    def shared_inference(self) -> SharedInference:
        """Inference workers in parallel mode."""
        return shared_inference(self.inference, self.collector)

    @property
    def user_code(self) -> Mapping[str, str]:
        """Names of the user's own code in `policy` and `learner`, as `module:name` by dotted key."""
        named = _named(self)
        for name, one in self.policies.items():
            named |= {f"policies.{name}.{setting}": reference for setting, reference in _named(one).items()}
        return {setting: reference for setting, reference in named.items() if ":" in reference}

    def of_policy(self, name: str) -> ExperimentConfig:
        """Return the settings of one of `policies`, as a config of a separate run."""
        one = self.policies[name]
        own: dict[str, object] = {"policies": {}, "policy": one.policy, "learner": one.learner, "buffer": one.buffer}
        if one.policy.reanalyzed_share is None:
            own["reanalyzer"] = ReanalyzerConfig()  # the reanalyzers work for other policies
        if (league := self.self_play.league) is not None:  # whose members are named in the config of the run alone
            own["self_play"] = self.self_play.model_copy(
                update={"league": league.model_copy(update={"exploiters": {}})}
            )
        return ExperimentConfig.model_validate({**dict(self), **own})

    def _check_several_agents(self) -> None:
        """Raise ValueError for missing or unavailable settings of environments with several agents."""
        if self.env.kind != "pettingzoo":
            own = "self_play.share" if self.self_play.share else "self_play.league"
            setting = "policies" if self.policies else own
            raise ValueError(f"{setting} is for environments with several agents: set env.kind to pettingzoo")
        if self.self_play.league is not None:
            self._check_league(self.self_play.league)
        for name in self.policies:
            try:
                self.of_policy(name)
            except ValidationError as error:
                told = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"policies.{name}: {told}") from None
        horizons = {name: one.policy.segment_steps for name, one in self.policies.items()}
        if len({steps for steps in horizons.values() if steps is not None}) > 1:
            told = ", ".join(f"{name}: {steps}" for name, steps in horizons.items() if steps is not None)
            raise ValueError(
                f"on-policy algorithms collect together, so policy.horizon_steps has to be the same in all policies "
                f"({told})"
            )

    def _check_league(self, league: LeagueConfig) -> None:
        """Raise ValueError for a league without games or without a main policy."""
        if not self.self_play.share:
            raise ValueError("self_play.league needs a share of episodes against the pool: set self_play.share above 0")
        if self.evaluator.episodes < 2 * league.pool:
            raise ValueError(
                f"evaluator.episodes ({self.evaluator.episodes}) is too few for self_play.league.pool ({league.pool}): "
                f"a checkpoint plays both sides against each, so set it to {2 * league.pool} or more"
            )
        if unknown := sorted(league.exploiters.keys() - self.policies.keys()):
            raise ValueError(f"self_play.league.exploiters names {unknown[0]}, which is none of policies")
        if league.exploiters and not self.policies.keys() - league.exploiters.keys():
            raise ValueError("self_play.league: every policy is an exploiter; one has to be the main policy")

    def _check_ranks(self) -> None:
        """Raise ValueError if several learner ranks could not learn together."""
        if self.learner.threads is not None:
            raise ValueError("learner.threads is for one rank: leave it out where learner.ranks is more than 1")
        if reason := self.policy.needs_whole_batches:
            raise ValueError(
                f"learner.ranks is {self.learner.ranks}, and policy.type {self.policy.type} cannot learn from parts of "
                f"a batch ({reason}): set it to 1"
            )
        rows = self.learner.batch_size
        if self.policy.segment_steps is not None:
            rows = self.learner.segments_per_update or self.env.num_envs * self.collector.count
        if rows < self.learner.ranks:
            raise ValueError(
                f"learner.ranks ({self.learner.ranks}) is more than the rows of a batch ({rows}): a rank would have "
                "none"
            )

    def _check_segments(self, horizon_steps: int) -> None:
        """Raise ValueError if an on-policy run would need more memory than any machine has."""
        envs, lag = self.env.num_envs * self.collector.count, self.buffer.max_policy_lag or 0
        waiting = (lag + 1) * (self.learner.segments_per_update or envs)
        steps = max(waiting * horizon_steps, self.env.num_envs * horizon_steps)
        if steps > LARGEST_CAPACITY:
            raise ValueError(
                f"{steps} steps would have to be kept at once, and the most is {LARGEST_CAPACITY}: lower "
                "policy.horizon_steps, learner.segments_per_update (env.num_envs times collector.count where it is "
                "null) or buffer.max_policy_lag"
            )


def _named(one: ExperimentConfig | AgentsPolicyConfig) -> dict[str, str]:
    """Names in the settings of one policy that may refer to code of the user."""
    return {"policy.type": one.policy.type, **one.policy.user_code, OPTIMIZER: one.learner.optimizer}
