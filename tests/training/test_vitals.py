"""What processes say of their time, put together by role; totals that come twice count once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from remuda.logbook.reports import VitalsReport
from remuda.logbook.series import Usage
from remuda.logbook.timers import Flat
from remuda.tests.coordinator.work import size_of
from remuda.training.vitals import MOST_PROCESSES, OTHERS, WORKERS_TOLD, Vitals
from remuda.wire.messages import Counters, TimedBlock, WorkerVitals

COUNTERS = Counters(env_step=500, train_iter=20, episode=3, policy_version=2, wall_s=60.0)


def said(lease: int, elapsed_s: float, blocks: Flat, *, cpu_s: float = 0.0, rss_mib: int = 1) -> WorkerVitals:
    return WorkerVitals(
        lease, elapsed_s, cpu_s, rss_mib * 2**20, [TimedBlock(path, *seen) for path, seen in blocks.items()]
    )


def role(report: VitalsReport | None, name: str) -> Usage:
    assert report is not None
    return next(vitals for vitals in report.roles if vitals.role == name)


def test_shares_by_what_a_block_means() -> None:
    vitals = Vitals(60.0, now_s=0.0)
    blocks: Flat = {
        "load policy": (1, 0.5),
        "collect": (5, 7.0),
        "collect/act": (5, 2.0),
        "collect/act/waiting for actions": (5, 1.5),
        "collect/step environments": (5, 4.0),
        "waiting for credit": (2, 1.0),
        "waiting for acknowledgements": (2, 0.5),
    }
    vitals.add("collector", "c", said(1, 10.0, blocks, cpu_s=8.0, rss_mib=100))
    seen = role(vitals.due(COUNTERS, 60.0), "collector")
    assert (seen.processes, seen.cpu_cores, seen.rss_mib) == (1, 0.8, 100.0)
    assert (seen.env, seen.wait_policy, seen.wait_credit, seen.wait_other, seen.wait_data) == (0.4, 0.2, 0.1, 0.05, 0)
    assert seen.work == pytest.approx(0.25)  # acting, and all that is in no block


def test_a_report_is_of_what_came_since_the_one_before() -> None:
    vitals = Vitals(60.0, now_s=0.0)
    vitals.add("learner", "l", said(1, 50.0, {"waiting for batches": (1, 50.0)}))
    assert vitals.due(COUNTERS, 59.0) is None
    assert vitals.work_share("l") == 0.0
    assert role(vitals.due(COUNTERS, 60.0), "learner").wait_data == 1.0
    for _ in range(2):  # counted once
        vitals.add("learner", "l", said(1, 110.0, {"waiting for batches": (1, 50.0), "update": (9, 60.0)}))
    assert role(vitals.due(COUNTERS, 120.0), "learner").wait_data == 0.0
    assert vitals.document(120.0)["roles"] == {
        "learner": {
            "l": {
                "total_s": 110.0,
                "self_s": 0.0,
                "blocks": {
                    "update": {"count": 9, "share": 0.5455, "total_s": 60.0, "self_s": 60.0},
                    "waiting for batches": {
                        "count": 1, "share": 0.4545, "total_s": 50.0, "self_s": 50.0,
                    },
                },
            }
        }
    }  # fmt: skip


def test_leases_of_one_worker_add_up() -> None:
    vitals = Vitals(60.0, now_s=0.0)
    vitals.add("collector", "c", said(1, 10.0, {"collect": (1, 10.0)}, rss_mib=5))
    vitals.add("collector", "c", said(2, 30.0, {"waiting for credit": (1, 30.0)}, rss_mib=7))
    seen = role(vitals.due(COUNTERS, 60.0), "collector")
    assert (seen.processes, seen.wait_credit, seen.rss_mib) == (1, 0.75, 7.0)


def test_workers_one_by_one_and_no_more_than_fit_in_a_record() -> None:
    vitals = Vitals(60.0, now_s=0.0)
    vitals.add("learner", "l", said(1, 10.0, {}, rss_mib=9))
    assert Vitals(60.0, now_s=0.0).due(COUNTERS, 60.0, last=True) is None, "nobody spoke"
    for number in range(WORKERS_TOLD):
        vitals.add("collector", f"c{number}", said(2 + number, 10.0, {"waiting for credit": (1, 0.1 * number)}))
    report = vitals.due(COUNTERS, 3.0, last=True)  # which does not wait
    assert report is not None
    assert (report.past_s, report.wall_s, report.env_step, report.train_iter) == (3.0, 60.0, 500, 20)
    assert (report.episode, report.policy_version) == (3, 2)
    assert (role(report, "collector").processes, len(report.workers)) == (WORKERS_TOLD, WORKERS_TOLD)
    assert (report.workers["l"].role, report.workers["l"].rss_mib) == ("learner", 9.0)
    seen = report.workers["c10"]
    assert (seen.role, seen.processes) == ("collector", 1)
    assert seen.wait_credit == pytest.approx(0.1)
    assert seen.work == pytest.approx(0.9)


def test_who_says_nothing_any_more_is_in_no_table_but_stays_in_the_file() -> None:
    vitals = Vitals(60.0, now_s=0.0)
    vitals.add("collector", "gone", said(1, 10.0, {}))
    vitals.add("learner", "l", said(2, 10.0, {}))
    assert vitals.due(COUNTERS, 60.0) is not None
    vitals.add("learner", "l", said(2, 70.0, {}))
    report = vitals.due(COUNTERS, 120.0)
    assert report is not None
    assert [seen.role for seen in report.roles] == ["learner"]
    roles = cast("dict[str, object]", vitals.document(120.0)["roles"])
    assert list(roles) == ["learner", "collector"]


def test_a_coordinator_tells_each_run_only_of_its_time() -> None:
    vitals = Vitals(60.0, now_s=1_000.0)
    vitals.add("coordinator", "coordinator", said(0, 1_000.0, {"waiting for messages": (1, 1_000.0)}))
    assert vitals.due(COUNTERS, 1_005.0, last=True) is None
    vitals.add("coordinator", "coordinator", said(0, 1_010.0, {"waiting for messages": (2, 1_005.0)}))
    assert role(vitals.due(COUNTERS, 1_010.0, last=True), "coordinator").wait_other == 0.5


def test_of_workers_that_came_and_went_the_newest_are_kept_and_those_that_hold_a_lease() -> None:
    """Those of a year were all kept, and each report went through all of them."""
    stays = 0
    vitals = Vitals(60.0, now_s=0.0, holds=lambda lease: lease == stays)
    vitals.add("collector", "stays", said(stays, 1.0, {"collect": (1, 1.0)}))
    for number in range(1, 5 * MOST_PROCESSES + 1):
        vitals.add("collector", f"c{number}", said(number, 2.0, {"collect": (1, 1.0)}))
    assert len(vitals._roles["collector"].processes) <= 2 * MOST_PROCESSES + 1  # pyright: ignore[reportPrivateUsage]
    vitals.add("collector", "stays", said(stays, 5.0, {"collect": (3, 5.0)}))
    collectors = cast("dict[str, dict[str, Any]]", vitals.document(60.0)["roles"])["collector"]
    elapsed_s = sum(seen["total_s"] for seen in collectors.values())
    assert elapsed_s == pytest.approx(5.0 + 2.0 * 5 * MOST_PROCESSES)
    assert sum(seen["blocks"]["collect"]["count"] for seen in collectors.values()) == 3 + 5 * MOST_PROCESSES
    assert (len(collectors), OTHERS in collectors) == (MOST_PROCESSES + 1, True), "the file stays readable"


def test_leases_of_a_worker_that_is_lent_again_and_again_leave_no_trace_but_their_sum() -> None:
    def kept(leases: int) -> int:
        vitals = Vitals(60.0, now_s=0.0)
        for lease in range(leases):
            vitals.add("collector", "c", said(lease, 2.0, {"collect": (1, 1.0)}))
            vitals.add("collector", "c", said(lease, 3.0, {"collect": (2, 2.0)}))
        roles = cast("dict[str, dict[str, Any]]", vitals.document(60.0)["roles"])
        assert roles["collector"]["c"]["total_s"] == 3.0 * leases
        return size_of(vitals)

    assert kept(500) <= kept(5) + 10  # numbers that are no small ones any more
