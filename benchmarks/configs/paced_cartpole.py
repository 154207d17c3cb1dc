"""CartPole whose step takes a fixed time, as that of a simulator does which runs elsewhere."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import SupportsFloat, cast

import gymnasium
from numpy import float32, int64
from numpy.typing import NDArray

Observation = NDArray[float32]
Environment = gymnasium.Env[Observation, int64]


class Paced(gymnasium.Wrapper[Observation, int64, Observation, int64]):
    """Waits in each step, and counts it."""

    def __init__(self, env: Environment, step_s: float, count: StepCount | None) -> None:
        super().__init__(env)
        self._step_s = step_s
        self._count = count

    def step(self, action: int64) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, object]]:
        time.sleep(self._step_s)
        if self._count is not None:
            self._count.add()
        return self.env.step(action)


class StepCount:
    """The steps of this process, in a file that is named by its id and right at any moment, even if it is killed."""

    _of_process: dict[tuple[str, int], StepCount] = {}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self._steps = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @classmethod
    def of_this_process(cls, folder: str) -> StepCount:
        """One for all its environments."""
        key = folder, os.getpid()
        if key not in cls._of_process:
            Path(folder).mkdir(parents=True, exist_ok=True)
            cls._of_process[key] = cls(Path(folder) / str(os.getpid()))
        return cls._of_process[key]

    def add(self) -> None:
        """A step more."""
        self._steps += 1
        os.pwrite(self._descriptor, b"%012d" % self._steps, 0)


def make_env(step_s: float = 0.001, counts: str | None = None) -> Environment:
    """What `env.make` names; `counts` is a folder for the number of steps of each process."""
    count = None if counts is None else StepCount.of_this_process(counts)
    return Paced(cast("Environment", gymnasium.make("CartPole-v1")), step_s, count)
