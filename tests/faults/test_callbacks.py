"""Callbacks of a run whose coordinator, and then its learner, is killed while a callback thinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Journal, commander
from remuda.tests.parallel.user_folder import CONFIG, ENDLESS, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

SLOW = '''
import os
import time
from pathlib import Path

import remuda

HERE = Path(__file__).parent


class Slow(remuda.Callback):
    """Thinks about each evaluation until it may go on."""

    def __init__(self):
        self.evaluated = []

    def on_evaluation(self, event, run):
        self.evaluated.append(event.train_iter)
        count = len(self.evaluated)
        (HERE / f"asked-{count}-{os.getpid()}").touch()
        while not (HERE / f"go-{count}").exists():
            time.sleep(0.01)
        run.log("evaluations", count)
        run.change("learner.learning_rate", run.config.learner.learning_rate / 2)
        if count == 3:
            run.stop("three are enough")

    def state(self):
        return {"evaluated": self.evaluated}

    def load_state(self, state):
        self.evaluated = state["evaluated"]
'''


def test_what_a_callback_decides_while_everybody_dies_counts_once(tmp_path: Path, herds: Herds) -> None:
    """At the second evaluation the coordinator is killed between event and decision, at the third the learner."""
    sections = {**ENDLESS, "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 300}}
    user, herd = UserFolder.make(tmp_path / "user", sections), herds()
    (user.root / "slow.py").write_text(SLOW)
    coordinator = herd.gather()
    run = herd.submit(user, "horse", 0, f"callbacks={json.dumps(['slow:Slow'])}")

    def asked(count: int) -> list[Path]:
        return list(user.root.glob(f"asked-{count}-*"))

    for count in (1, 4, 5):
        (user.root / f"go-{count}").touch()
    until(lambda: asked(2), "the second evaluation is told")
    coordinator.kill()
    coordinator.wait()
    (user.root / "go-2").touch()
    herd.coordinator()
    until(lambda: asked(3), "the third evaluation is told")
    herd.kill_worker("learner", "horse")
    until(lambda: len(asked(3)) == 2, "the next learner is told again")
    (user.root / "go-3").touch()
    status = herd.wait_over("horse")
    assert status.reason == "callback Slow: three are enough"
    herd.shut_down()

    known = Journal.of(run).snapshot.experiment.callbacks
    evaluated: list[Any] = msgspec.msgpack.decode(known.states["Slow"])["evaluated"]
    assert len(set(evaluated)) == len(evaluated) >= 3
    changes = [value for _, value in known.changes["learner.learning_rate"]]
    assert changes == [0.001 / 2 ** (1 + number) for number in range(len(evaluated))]
    assert len(asked(1)) == len(asked(2)) == 1
    said = commander(run, "callback Slow: learner.learning_rate is")
    assert len(said) == len(set(said)) == len(changes)
