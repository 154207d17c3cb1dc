"""Runs on suites of others are stored, and stand in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.benchmarks.learning.runs import Run
from remuda.benchmarks.suites import __main__ as command
from remuda.benchmarks.suites import skills
from remuda.benchmarks.suites.stored import RESULTS, keep, page, read, result_of
from remuda.benchmarks.suites.suites import SUITES


def run_of(*returns: float, seed: int = 0) -> Run:
    curve = [(100 * number, value) for number, value in enumerate(returns)]
    return Run("", "remuda", seed, True, curve[-1][0], 1.0, curve, 0.5, 1.0)


def test_a_run_takes_the_place_of_an_earlier_run_of_its_seed(tmp_path: Path) -> None:
    for run in (run_of(9.0), run_of(0.0, 1.0, 2.0, 3.0), run_of(4.0, 4.0, 4.0, seed=1)):
        scored = keep("minatar", "dqn", result_of("Breakout", "MinAtar/Breakout-v1", run), tmp_path)
    keep(
        "popgym", "ppo", result_of("AutoencodeEasy", "popgym:popgym-AutoencodeEasy-v0", run_of(0.0, 0.5, 0.2)), tmp_path
    )
    assert (scored.value, scored.runs, scored.env_steps) == (3.0, 2, 300)
    assert [one.seed for one in read(tmp_path / "minatar_dqn.jsonl")] == [0, 1]
    text = (tmp_path / "README.md").read_text()
    assert "| Breakout | 3.00 (0k, 2) |" in text
    assert "| AutoencodeEasy | 0.50 (0k, 1) |" in text
    assert "bsuite\n" not in text.replace("`", ""), "nothing of it is stored"


def test_the_stored_table_is_that_of_the_stored_runs() -> None:
    assert (RESULTS / "README.md").read_text() == page()
    for name, suite in SUITES.items():
        for path in RESULTS.glob(f"{name}_*.jsonl"):
            assert {one.environment for one in read(path)} <= set(suite.environments)


@pytest.mark.filterwarnings("ignore")  # of bsuite and what it needs
def test_a_family_of_bsuite_is_trained_recorded_and_scored(tmp_path: Path) -> None:
    pytest.importorskip("bsuite", reason="needs pip install 'remuda[suites]'")
    assert len(skills.ids("deep_sea", None)) == 21
    assert skills.env_steps("deep_sea/5") == 10_000 * 20
    asked = ["bsuite", "--environments", "deep_sea", "--algorithms", "dqn", "--max-env-steps", "500"]
    assert command.main([*asked, "--folder", str(tmp_path)]) == 0
    (result,) = read(tmp_path / "bsuite_dqn.jsonl")
    assert (result.setting, result.env_steps, result.record["episode"][-1]) == ("deep_sea/0", 500, 50.0)
    assert "| deep_sea | 0.00 (0k, 1) |" in (tmp_path / "README.md").read_text()
