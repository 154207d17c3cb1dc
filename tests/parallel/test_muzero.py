"""MuZero with worker processes: a collector and the learner are killed, the run is resumed, and played."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.conftest import Launcher, wait_until_held
from remuda.tests.parallel.reading import index, key_values, progress, texts
from remuda.tests.parallel.test_deaths import kill_first
from remuda.tests.parallel.user_folder import HELD, SMALL_MUZERO, UserFolder

pytestmark = pytest.mark.processes

MUZERO = f"policy={{{SMALL_MUZERO}}}"


def test_it_survives_deaths_is_resumed_and_played(tmp_path: Path, launched: Launcher) -> None:
    user = UserFolder.make(tmp_path / "user", HELD)
    user.hold()  # the run cannot end while its environments wait, so both deaths fall in its midst
    run = tmp_path / "run"
    launch = ("launch", user.config, "--run-dir", run, "--set", MUZERO, "--set", "stop.max_env_steps=2000")
    command = launched(user.root, *launch)
    wait_until_held(command, run, user)
    kill_first(run, "collector")
    kill_first(run, "learner")
    user.release()
    first = command.ended()
    assert first.code == 0, first.err
    before = index(run)["checkpoints"][-1]
    metas = [read_meta(path) for path in (run / "data").iterdir()]
    assert max(Counter(meta.chunk for meta in metas).values()) == 1
    assert sum(meta.env_steps for meta in metas) == before["env_step"] >= 2000
    rows = progress(run)
    assert int(rows[-1]["TestEnvInteracts"]) == before["env_step"]
    entropies = [float(row["visit_entropy_mean"]) for row in rows if row["visit_entropy_mean"] != "nan"]
    assert len(entropies) > 1
    assert all(0.0 <= entropy <= math.log(2) for entropy in entropies), "of two actions"
    logs = [run / "log" / "commander" / "commander_collector_logger.txt", *(run / "log" / "collector").glob("*.txt")]
    for log in logs:  # as far as a collector lived to report
        for text in (*texts(log, "collect end"), *texts(log, "[COLLECTOR]")):
            assert 0.0 <= float(key_values(text)["visit_entropy_mean"]) <= math.log(2)
    shown = curves(run / "log" / "commander" / "commander_tb_logger")
    for axis in ("iter", "step"):
        assert len(shown[f"collector_{axis}/visit_entropy_mean"]) == len(shown[f"collector_{axis}/episode_count"]) > 0

    again = launched(user.root, *launch, "--set", "stop.max_env_steps=2600", "--resume").ended()
    assert again.code == 0, again.err
    after = index(run)["checkpoints"][-1]
    assert after["env_step"] >= 2600
    assert after["train_iter"] > before["train_iter"] > 0
    for policy in (("-i", "-1"), ("-i", "model")):  # with a search, and without
        played = launched(user.root, "evaluate", run, *policy, "-n", 2, "-nr", "--json").ended()
        assert played.code == 0, played.err
        assert json.loads(played.out)["episodes"] == 2
