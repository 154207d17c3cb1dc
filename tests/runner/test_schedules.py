"""Schedules of settings in a serial run: each update has the values of its step, also once the run is resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from remuda.config.current import values_at
from remuda.runner.serial import Start
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.runs import Flag, run_tiny, tiny_config

RATE, CLIP = "learner.learning_rate", "learner.max_grad_norm"
OVERRIDES = (f"{RATE}=[[100, 0.01], [350, 0]]", f"{CLIP}=[[0, 1], [200, 3]]", "log.interval_train_iters=1")


def shown(root: Path) -> dict[str, list[tuple[int, float]]]:
    """Curves of the rates that updates had and of the settings: (env_step, value)."""

    tags = {tag.rpartition("/")[2]: points for tag, points in curves(RunFolder(root).serial_tb).items()
            if tag.startswith("learner_step")}  # fmt: skip
    return {name: tags[name] for name in ("cur_lr_avg", RATE, CLIP)}


def test_updates_follow_the_schedule_to_the_last_digit_and_go_on_with_it_when_resumed(
    user: Path, tmp_path: Path
) -> None:
    config = tiny_config(user, *OVERRIDES)
    run_tiny(config, Start(tmp_path / "whole"))
    run_tiny(config, Start(tmp_path / "again"))
    assert shown(tmp_path / "whole") == shown(tmp_path / "again")

    first = run_tiny(config, Start(tmp_path / "parts"), stop=Flag(looks=40))
    assert 100 < first.counters.env_step < 350
    run_tiny(config, Start(tmp_path / "parts", "resume"))
    for run in ("whole", "parts"):
        found = shown(tmp_path / run)
        for name, setting in (("cur_lr_avg", RATE), (RATE, RATE), (CLIP, CLIP)):
            assert len({at for at, _ in found[name]}) > 20
            for at, value in found[name]:
                assert value == np.float32(values_at(config, at, {})[setting]), (name, at)
