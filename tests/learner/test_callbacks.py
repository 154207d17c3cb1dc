"""Callbacks: requests reach the learner, and invalid requests are errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.learner.callback import Callback, CallbackRun
from remuda.learner.callbacks import CallbackHost, make_callbacks
from remuda.wire.messages import (
    MOST_CHANGES,
    MOST_STATE_BYTES,
    CallbackAnswer,
    Checkpointed,
    Ended,
    Episodes,
    Evaluated,
    Started,
    Verdict,
)

CONFIG = ExperimentConfig.model_validate(
    {"name": "x", "env": {"id": "CartPole-v1"}, "policy": {"type": "ppo"}, "learner": {"learning_rate": 0.25}}
)
STARTED = Started(env_step=0, train_iter=0)
EVENTS = (
    STARTED,
    Episodes(env_step=5, train_iter=1, returns=[1.0], lengths=[5], env_steps=[5]),
    Checkpointed(env_step=5, train_iter=1, checkpoint="iteration_1.pth.tar", reason="interval"),
    Evaluated(
        env_step=5,
        train_iter=1,
        mean_return=2.0,
        returns=[2.0],
        lengths=[2],
        is_best=True,
        checkpoint="iteration_1.pth.tar",
    ),
    Ended(env_step=9, train_iter=2, reason="max_env_steps", state="finished"),
)


def host(*callbacks: Callback, **more: object) -> CallbackHost:
    return CallbackHost(callbacks, CONFIG, ckpt=Path("ckpt"), **more)  # type: ignore[arg-type]


def asks(ask: Callable[[CallbackRun], object]) -> Callback:
    class Asks(Callback):
        def on_start(self, event: Started, run: CallbackRun) -> None:
            ask(run)

    return Asks()


def verdict(ask: Callable[[CallbackRun], object]) -> Verdict:
    (found,) = host(asks(ask)).decide(STARTED, 0).verdicts
    return found


def test_each_event_comes_to_its_method() -> None:
    called: list[tuple[str, object]] = []

    class All(Callback):
        def on_start(self, event: Started, run: CallbackRun) -> None:
            called.append(("start", event))

        def on_episode(self, event: Episodes, run: CallbackRun) -> None:
            called.append(("episode", event))

        def on_checkpoint(self, event: Checkpointed, run: CallbackRun) -> None:
            called.append(("checkpoint", event))

        def on_evaluation(self, event: Evaluated, run: CallbackRun) -> None:
            called.append(("evaluation", event))

        def on_end(self, event: Ended, run: CallbackRun) -> None:
            called.append(("end", event))

    one = host(All())
    assert [one.decide(event, 9) for event in EVENTS] == [CallbackAnswer(wants_episodes=True)] * len(EVENTS)
    assert called == list(zip(("start", "episode", "checkpoint", "evaluation", "end"), EVENTS, strict=True))


def test_what_it_asks_for_is_told_in_order_and_the_first_reason_counts() -> None:
    def ask(run: CallbackRun) -> None:
        run.log("a", 1)
        run.log("a", np.array([2.5]))
        run.change("learner.learning_rate", run.config.learner.learning_rate / 2)
        run.change("learner.learning_rate", 1)
        run.stop("first")
        run.stop("second")
        run.set_task({"size": 1})
        run.set_task({"size": np.int64(2), "doors": (1, 2)})

    changes: list[tuple[str, int | float]] = [("learner.learning_rate", 0.125), ("learner.learning_rate", 1.0)]
    assert verdict(ask) == Verdict("Asks", {"a": 2.5}, "first", changes, task_json='{"size": 2, "doors": [1, 2]}')


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("learner.learning_rate", -1.0, "Input should be greater than"),
        ("env.num_envs", 3, "it may not change during a run; these may: policy."),
        ("policy.hidden", 3, "it may not change"),
        ("learning_rate", 3, "it may not change"),
    ],
)
def test_a_setting_that_cannot_have_a_value_keeps_its_own(setting: str, value: float, problem: str) -> None:
    found = verdict(lambda run: run.change(setting, value))
    assert found.changes == []
    (text,) = found.refused
    assert text.startswith(f"{setting} stays as it is, and cannot become {value}: ")
    assert problem in text


def test_the_settings_are_those_of_now() -> None:
    seen: list[float] = []
    one = host(asks(lambda run: seen.append(run.config.learner.learning_rate)))
    one.decide(STARTED, 100)
    one.change({"learner.learning_rate": [(50, 0.5), (100, 0.75)]})
    for env_step in (10, 50, 100, 200):
        one.decide(STARTED, env_step)
    assert seen == [0.25, 0.25, 0.5, 0.75, 0.75]


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda run: sys.exit(3), "UserExitError"),
        (lambda run: run.log("", 1.0), "ValueError: a name should have 1 to 100 characters, not 0"),
        (lambda run: run.set_task({"size": "x" * 200_000}), "ValueError: the arguments of a task have"),
        (lambda run: [run.change("a.b", 1) for _ in range(MOST_CHANGES + 1)], "ValueError: more than 100 changes"),
    ],
)
def test_an_error_is_told_with_its_traceback(ask: Callable[[CallbackRun], object], error: str) -> None:
    found = verdict(ask)
    assert found.failure is not None
    assert found.failure.startswith(f"on_start of callback Asks failed: {error}")
    assert "test_callbacks.py" in found.traceback
    assert (found.stop, found.changes, found.state) == (None, [], None)


class Counts(Callback):
    def __init__(self, size: int = 0) -> None:
        self.count, self._size = 0, size

    def on_checkpoint(self, event: Checkpointed, run: CallbackRun) -> None:
        self.count += 1

    def state(self) -> Mapping[str, object]:
        return {"count": self.count, "much": "x" * self._size}

    def load_state(self, state: Mapping[str, object]) -> None:
        count = state["count"]
        assert isinstance(count, int)
        self.count = count


def test_a_state_is_told_when_it_has_changed_and_comes_back() -> None:
    first = Counts()
    one = host(first)
    states = [[each.state for each in one.decide(event, 9).verdicts] for event in (STARTED, STARTED, EVENTS[2])]
    assert states[1] == []
    ((_,), _, (state,)) = states
    assert state is not None
    assert msgspec.msgpack.decode(state) == {"count": 1, "much": ""}
    second = Counts()
    again = host(second, states={"Counts": state})
    assert second.count == 1
    assert again.decide(STARTED, 9) == CallbackAnswer()


def test_a_state_that_is_too_large_or_is_not_taken_is_named() -> None:
    (found,) = host(Counts(MOST_STATE_BYTES)).decide(STARTED, 0).verdicts
    assert found.failure is not None
    assert f"and the most is {MOST_STATE_BYTES}" in found.failure
    with pytest.raises(UserCodeError, match="load_state of Counts failed: KeyError: 'count'"):
        host(Counts(), states={"Counts": msgspec.msgpack.encode({"former": 1})})


class Misspelt(Callback):
    def on_evaluate(self, event: Evaluated, run: CallbackRun) -> None:
        run.stop("never")


class Wants(Callback):
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Misspelt, r"Misspelt has a method on_evaluate, which no event calls: did you mean on_evaluation\? The events"),
        (Misspelt(), r"Misspelt object at .* has a method on_evaluate"),
        (Wants, r"Wants cannot be made: TypeError: .* missing 1 required positional argument: 'size'"),
        (print, r"<built-in function print> should derive from remuda\.Callback, and is a builtin_function"),
    ],
    ids=["class", "object", "class with arguments", "function"],
)
def test_what_would_never_be_called_is_refused_before_the_run(given: Any, said: str) -> None:
    with pytest.raises(UserCodeError, match=said):
        make_callbacks(CONFIG, [given])
