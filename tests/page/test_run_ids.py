"""A request names a run by its path below the runs folder, and gets at nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.page import run_ids
from remuda.page.run_ids import RunIds, UnknownRunError


@pytest.fixture
def ids(tmp_path: Path) -> RunIds:
    for run in (
        "runs/a",
        "runs/sweep/lr=0.1/lr=0.1_s3",
        "elsewhere",
        "runs/.hidden",
        "runs/a/.replaced/old",
        "runs/\udcff",
    ):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.json").write_text("{}")
    (tmp_path / "runs" / "no_run").mkdir()
    return RunIds(tmp_path / "runs")


def test_runs_are_found_below_it_and_named_by_their_paths(ids: RunIds) -> None:
    assert ids.found() == (["a", "sweep/lr=0.1/lr=0.1_s3"], True)
    for run in ids.found()[0]:
        assert ids.folder(run).root == ids.runs_dir / run
        assert ids.id_of(str(ids.runs_dir / run)) == run


@pytest.mark.parametrize(
    "run",
    [
        "", ".", "..", "/", "../elsewhere", "a/..", "a/../../elsewhere", "a//b", "a/", "/a", "no_run", "sweep",
        ".hidden", "a/.replaced/old", "a\0", "a/b/c/d/e/f", "x" * 2_000, "é" * 300, "a\\..\\..", "%2e%2e/elsewhere",
        "\udcff",
    ],
)  # fmt: skip
def test_what_is_no_run_below_it_is_refused(ids: RunIds, run: str) -> None:
    with pytest.raises(UnknownRunError):
        ids.folder(run)


@given(st.text("./%\\ab\0é", max_size=30))
def test_no_text_leads_out_of_it(text: str) -> None:
    ids = RunIds(Path("/proc"))  # a folder with much below and beside it
    with pytest.raises(UnknownRunError):
        ids.folder(text)


def test_a_link_that_leads_out_of_it_is_no_run(ids: RunIds) -> None:
    (ids.runs_dir / "out").symlink_to(ids.runs_dir.parent / "elsewhere")
    (ids.runs_dir / "circle").symlink_to(ids.runs_dir / "circle")
    assert ids.found()[0] == ["a", "sweep/lr=0.1/lr=0.1_s3"]
    for run in ("out", "circle"):
        with pytest.raises(UnknownRunError):
            ids.folder(run)


def test_a_search_looks_at_a_bounded_number_of_folders(ids: RunIds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_ids, "MOST_FOLDERS", 3)
    assert ids.found() == (["a"], False), "what is deeper comes later"
    monkeypatch.setattr(run_ids, "MOST_FOLDERS", 5)
    assert ids.found()[1], "a, no_run, sweep, and two below that"
    monkeypatch.setattr(run_ids, "MOST_RUNS", 1)
    assert ids.found() == (["a"], False)
