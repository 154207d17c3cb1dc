"""The picture of a population has every run, its parent's checkpoint, its changed settings, and its returns."""

from __future__ import annotations

from remuda.page.lineage import family
from remuda.page.stored_runs import RunRow
from remuda.tests.page.folders import population


def test_each_run_has_its_origin_its_changes_and_its_intervals() -> None:
    row = RunRow(run="pbt/v/m01_g1", name="m01_g1", group="", env_step=250)
    found = family("pbt", population("pbt"), {"pbt/v/m01_g1": row})
    assert (found.members, found.until_env_steps, found.problem) == (2, [100, 200, 300], None)
    first, failed, copy = found.runs
    assert [(one.name, one.member, one.parent, one.replaced) for one in found.runs] == [
        ("m00_g0", 0, None, False),
        ("m01_g0", 1, None, True),
        ("m01_g1", 1, "m00_g0", False),
    ]
    assert (first.origin, first.changed, copy.run) == (None, {}, "pbt/v/m01_g1")
    assert copy.origin is not None
    assert (copy.origin.file, copy.origin.env_step, copy.origin.reward) == ("iteration_105.pth.tar", 105, 105.0)
    assert copy.changed == {"lr": (0.1, 0.05)}
    intervals = [[(each.begin, each.end, each.state) for each in one.stretches] for one in (first, failed, copy)]
    assert intervals == [
        [(0, 105, "done"), (105, 203, "done"), (203, 203, "under way")],
        [(0, 100, "failed")],
        [(105, 207, "done"), (207, 250, "under way")],
    ]
    assert [each.checkpoint and each.checkpoint.reward for each in copy.stretches] == [207.0, None]
