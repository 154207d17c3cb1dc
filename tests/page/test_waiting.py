"""The queue says in what order experiments get workers, what each lacks, and who has that now."""

from __future__ import annotations

import pytest

from remuda.coordinator.scheduler import Demand, Holding, plan
from remuda.page.herd import MissingWorkers, lacks, queue
from remuda.tests.page.statuses import experiment, status, uuid, worker

WHY = "waits for 1 learner (0 free) and 2 collectors (1 free) and 1 evaluator (0 free)"


def test_the_coordinator_s_sentence_in_parts() -> None:
    assert lacks(WHY) == [
        MissingWorkers("learner", 1, 1, 0, ""),
        MissingWorkers("collector", 1, 2, 1, ""),
        MissingWorkers("evaluator", 1, 1, 0, ""),
    ]


@pytest.mark.parametrize(
    ("part", "note"),
    [
        ("1 learner (1 free, kept for those before it)", "kept for those before it"),
        ("1 learner (2 free, 1 of them resting after a failure)", "1 of them resting after a failure"),
        ("1 learner (0 free, 1 coming back from low, high)", "1 coming back from low, high"),
    ],
)
def test_what_it_adds_is_a_note(part: str, note: str) -> None:
    (lack,) = lacks(f"waits for {part}")
    assert (lack.role, lack.note) == ("learner", note)


def test_it_is_the_scheduler_s_own_sentence() -> None:
    demand = Demand("x", 0, 1, {"learner": 1, "collector": 2}, {"learner": 1, "collector": 2}, started=False)
    holding = Holding("y", "other", 0, 0, {}, {"learner": 1})
    decided = plan([demand], {"collector": ["c"]}, [holding], {"learner": 1, "collector": 2})
    found = lacks(decided.waiting["x"])
    assert [(each.role, each.missing, each.needs, each.free) for each in found] == [
        ("learner", 1, 1, 0),
        ("collector", 1, 2, 1),
    ]


@pytest.mark.parametrize(
    "why", [None, "", "takes no workers for 4 s: 3 failures in a row", "runs with 1 of 2 collectors"]
)
def test_other_sentences_have_no_parts(why: str | None) -> None:
    assert lacks(why) == []


def test_the_order_in_which_they_get_workers_and_who_holds_them() -> None:
    low, high, urgent, done = uuid(1), uuid(2), uuid(3), uuid(4)
    found = queue(
        status(
            [
                experiment(id=low, name="low", state="running"),
                experiment(id=done, name="done", state="finished"),
                experiment(id=high, name="high", state="queued", waiting_for=WHY),
                experiment(id=urgent, name="urgent", state="queued", priority=5, waiting_for=WHY),
            ],
            [
                worker(1, role="learner", state="busy", experiment=low),
                worker(2, state="busy", experiment=low),
                worker(3),
                worker(4, role="evaluator", state="lost"),
            ],
        ),
        {low: "low", high: "sweep/high"},
    )
    assert [(each.name, each.place) for each in found.experiments] == [("urgent", 1), ("low", None), ("high", 2)]
    assert found.free == {"learner": 0, "collector": 1, "evaluator": 0, "reanalyzer": 0}
    waiting = found.experiments[2]
    assert (waiting.run, waiting.why, waiting.priority) == ("sweep/high", WHY, 0)
    assert [(holder.run, holder.role, holder.workers) for holder in waiting.held_by] == [
        ("low", "learner", 1),
        ("low", "collector", 1),
    ]
