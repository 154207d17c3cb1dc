"""Stored results and the picture: the newest of everything, with date and machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from remuda.benchmarks import machine
from remuda.benchmarks.__main__ import HERE, measure, modules
from remuda.benchmarks.picture import draw, score
from remuda.benchmarks.records import Record, everything, newest, parse, store
from remuda.tests.patience import HANG_S

FACTS = machine.facts()


def record(name: str, reference_name: str = "peer", *, ratio: float | None = 2.0, goal: str = ">= 1") -> Record:
    return Record(
        name=name,
        unit="1/s",
        ours=4.0,
        reference=2.0,
        reference_name=reference_name,
        ratio=ratio,
        goal=goal,
        met=True,
        n=3,
        date="2026-01-01",
        machine=FACTS,
    )


def test_printed_lines_become_stamped_records() -> None:
    line = (
        '{"name":"speed","unit":"1/s","ours":4.0,"reference":null,"reference_name":"peer","ratio":null,'
        '"goal":">= 1","met":false,"n":3,"failure":"it crashed"}'
    )
    (found,) = parse(["a warning", line, ""], date="2026-05-01", machine=FACTS)
    assert (found.key, found.ratio, found.failure) == (("speed", "peer"), None, "it crashed")
    assert (found.date, found.machine) == ("2026-05-01", FACTS)


def test_a_line_that_is_no_figure_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        parse(['{"value": 3}'], date="2026-05-01", machine=FACTS)


def test_newer_figures_replace_older_ones_of_the_same_name_and_the_rest_stays(tmp_path: Path) -> None:
    store([record("a", "x"), record("a", "gone"), record("b")], kind="ours", date="2026-05-01", folder=tmp_path)
    path = store([record("a", "x", ratio=9.0)], kind="ours", date="2026-05-02", folder=tmp_path)
    assert path.name == "2026-05-02-ours.jsonl"
    assert [(found.key, found.ratio) for found in newest("ours", tmp_path)] == [(("a", "x"), 9.0), (("b", "peer"), 2.0)]
    assert len((tmp_path / "2026-05-01-ours.jsonl").read_text().splitlines()) == 3, "history stays as it was"


def test_each_line_is_json_with_the_machine(tmp_path: Path) -> None:
    path = store([record("a")], kind="peers", date="2026-05-01", folder=tmp_path / "new")
    (line,) = path.read_text().splitlines()
    fields = json.loads(line)
    assert {"name", "unit", "ours", "reference", "reference_name", "ratio", "goal", "met", "n"} <= fields.keys()
    assert fields["machine"]["cores"] == FACTS["cores"]


def test_the_two_kinds_are_kept_apart_and_shown_together_newest_first(tmp_path: Path) -> None:
    older = msgspec.structs.replace(record("a", ratio=1.0), date="2026-05-01")
    newer = msgspec.structs.replace(record("a", ratio=5.0), date="2026-05-03")
    store([newer], kind="ours", date="2026-05-03", folder=tmp_path)
    store([older, record("b")], kind="peers", date="2026-05-01", folder=tmp_path)
    assert [(found.name, found.ratio) for found in everything(tmp_path)] == [("a", 5.0), ("b", 2.0)]
    assert newest("peers", tmp_path / "nowhere") == []


def test_facts_name_the_machine_but_not_the_host() -> None:
    assert FACTS["cores"] >= 1
    assert FACTS["memory_gib"] > 0
    assert {"numpy", "torch", "pyzmq", "gymnasium"} <= FACTS["versions"].keys()
    assert re.fullmatch(r"3\.\d+\.\d+\S*", FACTS["python"])
    assert "node" not in FACTS


@pytest.mark.parametrize(
    ("ratio", "goal", "expected"),
    [(4.0, ">= 2", 2.0), (1.0, ">= 2", 0.5), (0.125, "<= 0.25", 2.0), (1.0, "<= 0.25", 0.25), (None, ">= 2", None)],
)
def test_the_score_is_above_one_on_the_good_side_whatever_the_goals_direction(
    ratio: float | None, goal: str, expected: float | None
) -> None:
    assert score(record("a", ratio=ratio, goal=goal)) == expected


def test_without_a_goal_there_is_no_score() -> None:
    assert score(record("a", goal=">= 0")) is None


@pytest.mark.parametrize("count", [0, 1, 40])
def test_the_picture_is_drawn_whatever_there_is(tmp_path: Path, count: int) -> None:
    pytest.importorskip("matplotlib")
    ratios = [0.001, 0.5, None, 1.0, 3.0, 2000.0]
    draw([record(f"figure {i}", ratio=ratios[i % 6]) for i in range(count)], tmp_path / "figures.png")
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")


def test_files_with_figures_are_found_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "speed.py").write_text("import x\n\n\ndef figures(peers: bool) -> list[Figure]:\n    return []\n")
    (tmp_path / "shared.py").write_text("def other() -> None:\n    figures(False)\n")
    assert modules(tmp_path) == ["speed"]
    assert {"bulk_insert", "prioritized_replay"} <= set(modules(HERE))
    assert {"__main__", "figure", "replay"}.isdisjoint(modules(HERE))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `dummies` that a child process can import from."""
    (tmp_path / "dummies").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "dummies"


def test_a_benchmark_runs_in_a_process_of_its_own(package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (package / "fine.py").write_text(
        "import json, sys\n"
        "fields = dict(name='a', unit='s', ours=1, reference=1, reference_name='b', ratio=1, goal='>= 1', met=True)\n"
        "print(json.dumps(fields | {'n': 1 + ('--peers' in sys.argv)}))\n"
    )
    (found,), failure = measure(
        "fine", peers=True, deadline_s=HANG_S, date="2026-05-01", machine=FACTS, package="dummies"
    )
    assert failure is None
    assert (found.key, found.n) == (("a", "b"), 2)
    assert json.loads(capfd.readouterr().out)["name"] == "a"


@pytest.mark.parametrize(
    ("code", "deadline_s", "message"),
    [
        ("raise SystemExit(5)", HANG_S, "ended with status 5"),
        ("import time; time.sleep(600)", 0.5, "not done after 0.5 s"),
        ("print('{}')", HANG_S, "not a figure"),
    ],
)
def test_a_benchmark_that_comes_to_nothing_says_how(package: Path, code: str, deadline_s: float, message: str) -> None:
    (package / "broken.py").write_text(code)
    records, failure = measure(
        "broken", peers=False, deadline_s=deadline_s, date="2026-05-01", machine=FACTS, package="dummies"
    )
    assert records == []
    assert failure is not None
    assert message in failure


def test_what_was_measured_before_a_benchmark_failed_is_kept(package: Path) -> None:
    (package / "half.py").write_text(
        "import json, sys\n"
        "fields = dict(name='a', unit='s', ours=1, reference=1, reference_name='b', ratio=1, goal='>= 1', met=True)\n"
        "print(json.dumps(fields | {'n': 3}), flush=True)\n"
        "sys.exit(5)\n"
    )
    records, failure = measure(
        "half", peers=False, deadline_s=HANG_S, date="2026-05-01", machine=FACTS, package="dummies"
    )
    assert [record.name for record in records] == ["a"]
    assert failure == "it ended with status 5"
