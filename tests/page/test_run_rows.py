"""A sentence about each run: the reason of a wait, the progress, or the end."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from remuda.page.herd import Holder, MissingWorkers, QueueEntry
from remuda.page.run_rows import headline
from remuda.page.stored_runs import RunRow, StoredState


def run_row(state: StoredState, reason: str | None = None, why: str | None = None) -> RunRow:
    return RunRow(run="r", name="r", group="r", state=state, reason=reason, why=why)


LOW = [Holder("x", "low", "low", "learner", 1), Holder("x", "low", "low", "collector", 2)]


QUEUED = QueueEntry(
    id="1", run="a", name="a", state="queued", priority=0, place=2, wall_s=0.0, why="waits for 1 learner (0 free)",
    waits_for=[MissingWorkers("learner", 1, 1, 0, ""), MissingWorkers("collector", 2, 3, 1, "")], held_by=LOW,
)  # fmt: skip


@pytest.mark.parametrize(
    ("queued", "text"),
    [
        (QUEUED, "Waits for 1 learner and 2 collectors (1 free): low has them; it is number 2 in the queue."),
        (
            replace(QUEUED, held_by=[], waits_for=[MissingWorkers("learner", 0, 1, 1, "kept for those before it")]),
            "Waits for 1 learner (1 free, kept for those before it): the herd has too few; "
            "it is number 2 in the queue.",
        ),
        (
            replace(QUEUED, held_by=[replace(LOW[0], run=name) for name in "abcd"], place=None),
            "Waits for 1 learner and 2 collectors (1 free): a, b and 2 other runs have them.",
        ),
        (replace(QUEUED, why="takes no workers", waits_for=[], place=None), "Takes no workers."),
        (None, "It waits for workers."),
    ],
)
def test_a_run_in_the_queue_says_what_it_lacks_and_who_has_that(queued: QueueEntry | None, text: str) -> None:
    said = headline(run_row("queued"), queued=queued)
    assert (said.tone, said.text) == ("wait", text)


@pytest.mark.parametrize(
    ("run", "tone", "text"),
    [
        (run_row("starting"), "wait", "It has its workers, and waits until its learner is ready."),
        (run_row("running", why="held up: the disk is full"), "wait", "Held up: the disk is full."),
        (run_row("stopping"), "wait", "It ends: the last checkpoint is saved and evaluated."),
        (run_row("finished", "stop_value"), "still", "Finished: its return reached the stop value 475."),
        (run_row("finished", "max_env_steps"), "still", "Finished: it has made 120,000 environment steps."),
        (run_row("stopped", "stopped"), "still", "Stopped: somebody asked for it."),
        (run_row("failed", "the horse has bolted. "), "bad", "Failed: the horse has bolted."),
    ],
)
def test_a_run_says_in_one_sentence_how_it_is(run: RunRow, tone: str, text: str) -> None:
    said = headline(run, stop={"stop_value": 475, "max_env_steps": 120_000})
    assert (said.tone, said.text) == (tone, text)


@pytest.mark.parametrize(
    ("learner", "collector", "tone", "text"),
    [
        ({"work": 1.0}, {"env": 1.0}, "good", "It runs, and nobody waits for long."),
        ({"work": 1.0}, {"wait_credit": 0.92}, "good", "The learner sets the pace"),
        ({"work": 0.4, "wait_batches": 0.6}, {"env": 1.0}, "wait", "The learner waits for batches 60 % of its time"),
        (
            {"work": 0.5, "wait_batches": 0.5},
            {"env": 0.7, "wait_credit": 0.3},
            "wait",
            "The learner and its collectors wait for each other, it for batches 50 % of its time, they for credit 30 %",
        ),
        ({"work": 0.9, "wait_disk": 0.1}, {"wait_credit": 0.9}, "wait", "The learner waits for the disk 10 %"),
        ({"work": 1.0}, {"wait_workers": 0.5}, "wait", "The collector waits for workers 50 % of its time"),
    ],
)
def test_a_run_that_goes_on_names_the_wait_that_costs_most(
    learner: Mapping[str, float], collector: Mapping[str, float], tone: str, text: str
) -> None:
    said = headline(run_row("running"), recent={"learner": learner, "collector": collector})
    assert said.tone == tone
    assert said.text.startswith(text)
