"""A stream tells what has changed, and nothing twice."""

from __future__ import annotations

from msgspec.structs import replace

from remuda.page.herd import WorkerView, worker_view
from remuda.page.stream import Changes, worker_summary
from remuda.tests.page.statuses import worker


def test_only_what_is_new_or_has_changed_is_told() -> None:
    changes = Changes[tuple[str, int]](lambda item: item[0], lambda item: item[1])
    assert changes.take([("a", 1), ("b", 1)]) == ([("a", 1), ("b", 1)], [])
    assert changes.take([("a", 1), ("b", 2), ("c", 1)]) == ([("b", 2), ("c", 1)], [])
    assert changes.take([("a", 1)]) == ([], ["b", "c"])
    assert changes.take([("b", 2)]) == ([("b", 2)], ["a"])


def test_small_changes_of_numbers_are_not_told() -> None:
    changes = Changes[WorkerView](lambda view: view.uuid, worker_summary)
    first = worker_view(worker(1), {})
    assert changes.take([first])[0] == [first]
    assert changes.take([replace(first, beat_age_s=4.9, cpu_cores=0.24, rss_bytes=first.rss_bytes + 1)])[0] == []
    for changed in (replace(first, activity="training"), replace(first, incarnation=2), replace(first, cpu_cores=1.0)):
        assert changes.take([changed])[0] == [changed]


def test_the_age_of_the_last_beat_of_a_silent_worker_grows() -> None:
    changes = Changes[WorkerView](lambda view: view.uuid, worker_summary)
    silent = [replace(worker_view(worker(1), {}), beat_age_s=float(age_s)) for age_s in range(12)]
    assert [each.beat_age_s for each in silent if changes.take([each])[0]] == [0.0, 5.0, 10.0]
