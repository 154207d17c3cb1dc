"""Callbacks whose state says what they were told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from remuda.learner.callback import Callback, CallbackRun
from remuda.wire.messages import Checkpointed, Ended, Episodes, Evaluated, Started


class Notes(Callback):
    """Notes everything, halves the learning rate with every evaluation, and ends the run after some of them."""

    def __init__(self, evaluations: int = 1_000_000) -> None:
        self._evaluations = evaluations
        self.told: list[str] = []
        self.episodes = 0

    def on_start(self, event: Started, run: CallbackRun) -> None:
        self.told.append("start")

    def on_evaluation(self, event: Evaluated, run: CallbackRun) -> None:
        self.told.append(f"evaluation {event.train_iter}")
        count = sum(each.startswith("evaluation") for each in self.told)
        run.log("count", count)
        run.log("returns", event.returns)
        run.change("learner.learning_rate", run.config.learner.learning_rate / 2)
        if count >= self._evaluations:
            run.stop("enough")

    def on_checkpoint(self, event: Checkpointed, run: CallbackRun) -> None:
        self.told.append(f"checkpoint {event.train_iter} {event.reason}")

    def on_episode(self, event: Episodes, run: CallbackRun) -> None:
        assert len(event.returns) == len(event.lengths) == len(event.env_steps)
        assert event.env_steps == sorted(event.env_steps)
        self.episodes += len(event.returns)

    def on_end(self, event: Ended, run: CallbackRun) -> None:
        self.told.append(f"end {event.reason}")
        run.stop("too late")

    def state(self) -> Mapping[str, object]:
        return {"told": list(self.told), "episodes": self.episodes}

    def load_state(self, state: Mapping[str, object]) -> None:
        self.told = [*cast("list[str]", state["told"])]
        self.episodes = cast("int", state["episodes"])


class Failing(Callback):
    """Fails with the first evaluation after so many environment steps, and again at the end."""

    def __init__(self, after: int = 0) -> None:
        self._after = after

    def on_evaluation(self, event: Evaluated, run: CallbackRun) -> None:
        if event.env_step >= self._after:
            raise ValueError("I do not like it")

    def on_end(self, event: Ended, run: CallbackRun) -> None:
        raise ValueError(f"I do not like {event.state}")


class Climbs(Callback):
    """Goes on to the next task with each evaluation at the present one, up to a last."""

    def __init__(self, last: int = 3) -> None:
        self._last = last

    def on_evaluation(self, event: Evaluated, run: CallbackRun) -> None:
        if event.task < self._last:
            run.set_task({"size": event.task + 2})
