"""The present task of a run, by env.schedule and by requests, and the change to the next.

Pure. Several policies play together at one task: the first policy decides.
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

    A stage of `env.schedule` begins once its condition holds, after the stage before. A condition on returns uses only
    the newest evaluation at the present task.
    """

    def __init__(self, config: ExperimentConfig, state: TaskSnapshot | None = None) -> None:
        self._config = config
        self.restore(state or TaskSnapshot())

    # --- what holds ---

    @cached_property
    def task(self) -> Task:
        """Task for workers."""
        asked = self.state.kwargs_json
        return Task(self.number, kwargs_of_stage(self._config, self.state.stage) if asked is None else asked)

    @cached_property
    def name(self) -> str:
        """Name of the task measured by evaluations; see task_of."""
        return self._measured_at(self.task)

    def name_of(self, task: Task) -> str:
        """The same of any task of the run."""
        return self.name if task == self.task else self._measured_at(task)

    def _measured_at(self, task: Task) -> str:
        return task_of(on_task(self._config, task.kwargs_json))

    @property
    def shown(self) -> int | None:
        """Number for logs and curves; None in runs with a single task."""
        return self.number if self._config.env.schedule or self.number else None

    # --- what happens ---

    def _set(self, state: TaskSnapshot) -> None:
        self.state = state
        """State for a restart."""
        self.number = state.number
        """Number of earlier tasks."""
        self.asked = state.asked
        """Arguments of a requested task."""
        self.is_last = state.stage >= len(self._config.env.schedule)
        """No stage is left, so stop.stop_value applies."""
        self.stays = self.is_last and self.asked is None
        """No further task is known; a request or another policy may still bring a task."""

    def evaluated(self, task: Task, reward_mean: float) -> None:
        """Note the mean return of an evaluation at this task; results of earlier tasks are ignored."""
        if task.number == self.number:
            self._set(replace(self.state, reached=reward_mean))

    def ask(self, kwargs_json: str) -> None:
        """Request the next task at once, with these arguments, as JSON, over `env.kwargs`. Arguments of the present
        task change nothing. The remaining stages of `env.schedule` begin as before."""
        is_present = json.loads(kwargs_json) == json.loads(self.task.kwargs_json or "{}")
        self._set(replace(self.state, asked=None if is_present else kwargs_json))

    def begin(self, state: TaskSnapshot) -> None:
        """Go on to another task."""
        self._set(state)
        for known in ("task", "name"):
            self.__dict__.pop(known, None)

    def restore(self, state: TaskSnapshot) -> None:
        """Continue from a snapshot; the schedule of the config may now have fewer stages."""
        self.begin(replace(state, stage=min(state.stage, len(self._config.env.schedule))))

    # --- what follows ---

    def next(self, together: Sequence[Curriculum], env_step: int) -> TaskSnapshot | None:
        """Return the next task if it is due; None to stay. `together` has the curricula of all policies, in order."""
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
        """True if the next stage begins."""
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
