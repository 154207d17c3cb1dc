"""`remuda reproduce`: a second run agrees to the bit; differing code, settings and results are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.config.manifest import read_manifest
from remuda.runner.serial import Start
from remuda.tests.cli.terminal import Terminal
from remuda.tests.runner.runs import run_tiny, tiny_config

pytestmark = pytest.mark.xdist_group("a tiny run")


def test_a_second_run_agrees_or_names_the_changed_module(terminal: Terminal, tiny_run: Path, tmp_path: Path) -> None:
    (begun,) = read_manifest(tiny_run)
    assert begun.packages["numpy"]
    assert set(begun.own_code) == {"walk"}
    again = tmp_path / "again"
    done = terminal.remuda("reproduce", tiny_run, "--run-dir", again, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["equal"]
    assert {what: part for what, part in told["parts"].items() if not part["equal"]} == {}
    assert min(told["parts"][what]["compared"] for what in ("checkpoints", "metrics", "experience", "steps")) > 1
    refused = terminal.remuda("reproduce", tiny_run, "--run-dir", again)
    assert (refused.code, f"--against {again}" in refused.err) == (2, True)

    manifest = again / "manifest.json"
    manifest.write_text(manifest.read_text().replace(begun.own_code["walk"], "0" * 64))
    rows = again / "progress.txt"
    header, *cells = (line.split("\t") for line in rows.read_text().splitlines())
    column = header.index("EpLen")
    cells[-1][column] = repr(float(cells[-1][column]) + 1e-9)
    rows.write_text("\n".join("\t".join(row) for row in [header, *cells]) + "\n")
    done = terminal.remuda("reproduce", tiny_run, "--against", again, "--json")
    told, step = json.loads(done.out), int(cells[-1][header.index("TotalEnvInteracts")])
    assert (done.code, told["equal"]) == (1, False)
    assert "walk is 000000000000 and was" in told["parts"]["code"]["text"]
    assert told["verdict"].startswith(f"The runs part first at env_step {step}: metrics: {len(cells) - 1} of ")


def test_first_steps_agree_with_a_run_that_ends_in_an_epoch(terminal: Terminal, tiny_run: Path, tmp_path: Path) -> None:
    other = run_tiny(tiny_config(tmp_path / "user", "stop.max_env_steps=220"), Start(tmp_path / "other"))
    told = json.loads(terminal.remuda("reproduce", tiny_run, "--against", other.run_dir, "--json").out)
    results = {part: told["parts"][part]["equal"] for part in ("checkpoints", "metrics", "experience", "steps")}
    assert results == dict.fromkeys(results, True), told["verdict"]
    assert told["parts"]["metrics"]["compared"] == 5, "without the row of the end"


def test_other_settings_part_at_the_first_weights(terminal: Terminal, tiny_run: Path, tmp_path: Path) -> None:
    other = run_tiny(tiny_config(tmp_path / "user", "seed=4", "stop.max_env_steps=60"), Start(tmp_path / "other"))
    told = terminal.remuda("reproduce", tiny_run, "--against", other.run_dir)
    assert told.code == 1
    assert "seed is 4 and was 3" in told.out
    assert "The runs part first at env_step 0: checkpoints: 0 of 1 equal; iteration_0.pth.tar differs in model" in (
        told.out
    )
