"""Which task a run is at, and when it goes on to another: env.schedule, and tasks that are asked for.

Pure. Several policies play together, so they are at the same task: the first decides, and the others follow it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

from msgspec.structs import replace

from remuda.config.current import kwargs_of_stage, on_task, task_of
from remuda.config.schema import ExperimentConfig
from remuda.training.snapshot import TaskSnapshot
from remuda.wire.messages import Task


class Curriculum:
    """The present task of one policy's run.

    A stage of `env.schedule` begins once its condition holds, after the one before it. A condition on returns looks at
    the newest evaluation at the present task alone.
    """

    def __init__(self, config: ExperimentConfig, state: TaskSnapshot | None = None) -> None:
        self._config = config
        self.restore(state or TaskSnapshot())

    # --- what holds ---

    @cached_property
    def task(self) -> Task:
        """What workers are told."""
        asked = self.state.kwargs_json
        return Task(self.number, kwargs_of_stage(self._config, self.state.stage) if asked is None else asked)

    @cached_property
    def name(self) -> str:
        """What evaluations at this task measure; see task_of."""
        return self._measured_at(self.task)

    def name_of(self, task: Task) -> str:
        """The same of any task of the run."""
        return self.name if task == self.task else self._measured_at(task)

    def _measured_at(self, task: Task) -> str:
        return task_of(on_task(self._config, task.kwargs_json))

    @property
    def shown(self) -> int | None:
        """The number for logs and curves; None where there is one task."""
        return self.number if self._config.env.schedule or self.number else None

    # --- what happens ---

    def _set(self, state: TaskSnapshot) -> None:
        self.state = state
        """What is needed to continue after a restart."""
        self.number = state.number
        """How many tasks were before this one."""
        self.asked = state.asked
        """The arguments of a task that was asked for."""
        self.is_last = state.stage >= len(self._config.env.schedule)
        """No stage is left, so the task is what the run is for: stop.stop_value counts."""
        self.stays = self.is_last and self.asked is None
        """No other task is to come, unless somebody asks for one or another policy is ahead."""

    def evaluated(self, task: Task, reward_mean: float) -> None:
        """A checkpoint was evaluated at this task; what was measured at an earlier one decides nothing."""
        if task.number == self.number:
            self._set(replace(self.state, reached=reward_mean))

    def ask(self, kwargs_json: str) -> None:
        """Have the next task begin now, with these arguments, as JSON, over those of `env.kwargs`; with those of the
        present task that goes on. The stages of `env.schedule` that are left begin as before."""
        is_present = json.loads(kwargs_json) == json.loads(self.task.kwargs_json or "{}")
        self._set(replace(self.state, asked=None if is_present else kwargs_json))

    def begin(self, state: TaskSnapshot) -> None:
        """Go on to another task."""
        self._set(state)
        for known in ("task", "name"):
            self.__dict__.pop(known, None)

    def restore(self, state: TaskSnapshot) -> None:
        """Continue from a snapshot; with a config whose schedule may have fewer stages than before."""
        self.begin(replace(state, stage=min(state.stage, len(self._config.env.schedule))))

    # --- what follows ---

    def next(self, together: Sequence[Curriculum], env_step: int) -> TaskSnapshot | None:
        """The task to go on to now; None to stay. `together` are those of all policies, in their order."""
        lead = together[0]
        if self is not lead:
            ahead = lead.number > self.number
            return replace(lead.state, reached=None, asked=None) if ahead else None
        asked = next((each.asked for each in together if each.asked is not None and each.number == self.number), None)
        stage = self.state.stage
        if asked is None and not self._is_met(together, env_step):
            return None
        return TaskSnapshot(self.number + 1, stage + (asked is None), asked, env_step)

    def _is_met(self, together: Sequence[Curriculum], env_step: int) -> bool:
        """Whether the next stage begins."""
        if self.is_last:
            return False
        stage = self._config.env.schedule[self.state.stage]
        if stage.env_step is not None:
            return env_step >= stage.env_step
        assert stage.mean_return is not None, "a stage has a condition"
        reached = [each.state.reached for each in together if each.number == self.number]
        return len(reached) == len(together) and all(
            value is not None and value >= stage.mean_return for value in reached
        )
