"""What is measured, by a clock that goes on by 20 ms with every look: each call that is timed then takes so long."""

from __future__ import annotations

# torch's annotations are partial: pyright does not know what these calls return.
# pyright: reportUnknownMemberType=false
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from remuda.config.load import load_settings
from remuda.config.schema import ExperimentConfig
from remuda.deploy import measuring
from remuda.deploy.measuring import MANY_ENVS, MOST, SLOW_S, NoRowsError, measure, seconds
from remuda.environments.processes import usable_cores
from remuda.learner import precision as learner_precision
from remuda.tests.runner.runs import tiny_config

TICK_S = 0.02
US = 1e-6
PPO = {"type": "ppo", "horizon_steps": 16, "hidden": [8], "epochs": 1, "minibatches": 1}


@dataclass
class Ticking:
    """A clock."""

    now_s: float = 100.0

    def __call__(self) -> float:
        self.now_s += TICK_S
        return self.now_s


def cartpole(**settings: object) -> ExperimentConfig:
    return load_settings({"name": "a", "env": {"id": "CartPole-v1"}, **settings}, folder=Path()).config


def test_replay_with_an_environment_of_single_objects(tmp_path: Path) -> None:
    costs = measure(tiny_config(tmp_path), serial=True, try_threads=False, clock=Ticking())
    assert costs.cores == usable_cores()
    assert costs.vector_s == {1: pytest.approx(TICK_S)}
    assert costs.act_s.keys() == {1, 8, 64}
    assert all(act_s >= TICK_S for act_s in costs.act_s.values()), "and recording"
    assert costs.learn_s == {1: pytest.approx(TICK_S * 4 / 8)}, "batches of 8, and each row is drawn 4 times"


def test_on_policy_with_a_vectorised_class() -> None:
    config = cartpole(policy=PPO, learner={"segments_per_update": 20})
    costs = measure(config, serial=True, try_threads=False, clock=Ticking())
    assert costs.vector_s == {1: pytest.approx(TICK_S), MANY_ENVS: pytest.approx(TICK_S)}
    assert costs.learn_s == {1: pytest.approx(TICK_S / (20 * 16))}, "of a whole update, since it is quick"


def test_long_updates_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "WHOLE_UPDATE_S", 0.0)
    config = cartpole(policy=PPO, learner={"segments_per_update": 20})
    costs = measure(config, serial=True, try_threads=False, clock=Ticking())
    assert costs.learn_s == {1: pytest.approx(TICK_S / (20 * 16))}, "8 segments take as long as 16"


def test_more_threads_are_tried_while_they_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "usable_cores", lambda: 8)
    monkeypatch.setattr(learner_precision, "LARGE", 1)
    config = cartpole(policy={"hidden": [8]}, buffer={"samples_per_insert": None}, learner={"threads": 3})
    costs = measure(config, serial=True, try_threads=True, clock=Ticking())
    assert costs.learn_s == {1: pytest.approx(TICK_S), 2: pytest.approx(TICK_S)}, (
        "two gain nothing, so four are not tried"
    )
    monkeypatch.setattr(learner_precision, "LARGE", 1 << 40)
    small = measure(config, serial=True, try_threads=True, clock=Ticking())
    assert small.learn_s.keys() == {1}, "none of this size has ever gained"
    log_lines = measure(config, serial=True, try_threads=False, clock=Ticking())
    assert log_lines.learn_s == {3: pytest.approx(TICK_S)}, "per update, where nothing ties it to steps"


def test_nothing_of_it_stays(tmp_path: Path) -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    measure(tiny_config(tmp_path), serial=True, try_threads=True, clock=Ticking())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def test_rows_that_take_too_long_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    config = cartpole(policy={"type": "r2d2", "hidden": [8], "sequence_steps": 200, "burn_in_steps": 200})
    with pytest.raises(NoRowsError, match="did not make one row of experience"):
        measure(config, serial=True, try_threads=False, clock=Ticking())


def test_the_least_time_counts_and_slow_calls_are_not_repeated() -> None:
    took_s = iter([0.2, 0.01, 0.03])
    clock = _Clock()
    assert seconds(lambda: clock.wait(next(took_s)), clock) == pytest.approx(0.01), "two are enough"
    assert seconds(lambda: clock.wait(2 * SLOW_S), clock) == pytest.approx(2 * SLOW_S)
    begin_s = clock()
    seconds(lambda: clock.wait(10 * US), clock)
    assert clock() - begin_s == pytest.approx(MOST * 10 * US)


class _Clock:
    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def wait(self, time_s: float) -> None:
        self._now_s += time_s
