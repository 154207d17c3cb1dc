"""Benchmarks run in processes of their own, write their results, and say why they could not."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.benchmarks import machine, process
from remuda.benchmarks.__main__ import HERE, measure, modules
from remuda.benchmarks.figure import ReferenceFailedError, compare, to_json
from remuda.benchmarks.learning.page import ELSEWHERE, example_of, needed
from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.stored import RESULTS, read, store
from remuda.benchmarks.learning.tasks import BY_NAME, TASKS, config_file
from remuda.benchmarks.peers import peer
from remuda.benchmarks.picture import draw
from remuda.benchmarks.records import newest
from remuda.benchmarks.records import store as store_records
from remuda.config.load import load_config
from remuda.tests.patience import HANG_S

ROOT = Path(__file__).parents[2]
FACTS = machine.facts()
FINE = """
import json, sys
fields = dict(name='a', unit='s', ours=1, reference=1, reference_name='b', ratio=1, goal='>= 1', met=True)
print(json.dumps(fields | {'n': 1 + ('--peers' in sys.argv)}), flush=True)
"""


def test_figures_are_measured_stored_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Newer figures replace older figures of their name; what was measured before a failure is kept."""
    (tmp_path / "dummies").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, code in (("fine", FINE), ("half", FINE + "sys.exit(5)"), ("broken", "print('{}')")):
        (tmp_path / "dummies" / f"{name}.py").write_text(code)

    def measured(name: str, date: str) -> str | None:
        records, failure = measure(name, peers=True, deadline_s=HANG_S, date=date, machine=FACTS, package="dummies")
        store_records(records, kind="ours", date=date, folder=tmp_path / "results")
        return failure

    assert measured("fine", "2026-05-01") is None
    assert measured("half", "2026-05-02") == "it ended with status 5"
    assert "not a figure" in (measured("broken", "2026-05-02") or "")
    assert len(capfd.readouterr().out.splitlines()) == 3
    (found,) = newest("ours", tmp_path / "results")
    assert (found.key, found.n, found.date, found.machine) == (("a", "b"), 2, "2026-05-02", FACTS)
    draw([found], tmp_path / "figures.png")
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")


def test_files_with_figures_are_found_by_themselves() -> None:
    assert {"bulk_insert", "prioritized_replay"} <= set(modules(HERE))
    assert {"__main__", "figure", "replay"}.isdisjoint(modules(HERE))


def playing(*values: float) -> Callable[[], float]:
    """A measure that returns these values one after the other."""
    left = iter(values)
    return lambda: next(left)


@pytest.mark.parametrize(("goal", "met"), [(">= 3", True), (">= 3.1", False), ("<= 3", True), ("<= 2.9", False)])
def test_medians_are_compared_with_the_goal(goal: str, met: bool) -> None:
    """A reference that fails, or measured nothing, meets no goal; the others go on."""

    def failing() -> float:
        raise ReferenceFailedError("it crashed")

    references = {"peer": playing(5, 4, 0.001), "bad": failing, "none": playing(0, 0, 0)}
    peers, bad, none = compare("speed", unit="1/s", goal=goal, ours=playing(10, 1000, 12), references=references)
    assert (peers.ours, peers.reference, peers.ratio, peers.met, peers.n) == (12, 4, 3.0, met, 3)
    assert (bad.met, bad.failure) == (False, "it crashed")
    assert math.isnan(none.ratio)
    assert not none.met
    fields = json.loads(to_json(bad))
    assert (fields["reference"], fields["ratio"], fields["failure"]) == (None, None, "it crashed")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise RuntimeError('no such game')", "ended with status 1: RuntimeError: no such game"),
        ("print('fast')", "printed no line like"),
        ("print('{\"speed\": 1}')", "missing required field `value`"),
    ],
)
def test_a_peer_prints_its_value_or_says_why_there_is_none(tmp_path: Path, code: str, message: str) -> None:
    script = tmp_path / "benchmarks" / "peers" / "dummy" / "speed.py"
    interpreter = tmp_path / ".venv-peers" / "dummy" / "bin" / "python"
    for path in (script, interpreter):
        path.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    script.write_text("import sys\nprint('{\"value\": 1}')\nprint('{\"value\": %s}' % sys.argv[1])\nprint('bye')")
    assert peer("dummy", "speed", "2.5", root=tmp_path)() == 2.5
    script.write_text(code)
    with pytest.raises(ReferenceFailedError) as caught:
        peer("dummy", "speed", root=tmp_path)()
    assert message in str(caught.value)
    with pytest.raises(ReferenceFailedError, match="make bench-peers"):
        peer("elsewhere", "speed", root=tmp_path)()


def test_a_process_that_takes_too_long_is_stopped() -> None:
    stopped = process.run([sys.executable, "-S", "-c", "import time; time.sleep(600)"], deadline_s=0.1)
    assert stopped.status is None


def test_runs_of_a_task_are_stored_with_their_figures_and_their_picture(tmp_path: Path) -> None:
    task = BY_NAME["pendulum_ppo"]
    runs = [Run(task.name, side, 0, True, 5, 2.0, [(0, -9.0), (5, 0.0)]) for side in (OURS, PEER)]
    store(task, runs, None, tmp_path)
    assert read(tmp_path / "pendulum_ppo.jsonl").runs == runs
    assert (tmp_path / "pendulum_ppo.jsonl").read_text().count("learning_pendulum_ppo_") == 3
    assert (tmp_path / "pendulum.png").stat().st_size > 1_000


def test_stored_runs_of_the_repository_can_be_read() -> None:
    files = sorted(RESULTS.glob("*.jsonl"))
    assert files
    stored = {path.stem: read(path) for path in files}
    tasks = {name: {shown.task.name, *(run.task for run in shown.runs)} for name, shown in stored.items()}
    assert tasks == {name: {name} for name in stored}


def test_every_example_is_run_to_its_end_by_a_task_whose_settings_load() -> None:
    for task in TASKS:
        config = load_config(config_file(task), overrides=[*task.overrides]).config
        assert (config.policy.type, tuple(config.policies or ())) == (task.algorithm, task.policies)
    run = {example_of(task) for task in TASKS} - {None}
    assert run | set(ELSEWHERE) == {path.name for path in (ROOT / "examples").glob("*.yaml")}


def test_a_first_policy_with_the_return_by_luck_is_no_number_of_steps() -> None:
    task = BY_NAME["cartpole_ppo"]
    steps = (0, 12_000, 5_000)
    runs = [Run(task.name, OURS, seed, True, step, 2.0, [(step, 500.0)]) for seed, step in enumerate(steps)]
    assert needed(task, runs) == "5,000 to 12,000; 3 of 3, 1 untrained"
    assert needed(task, runs[:1]) == "1 of 1, 1 untrained"
