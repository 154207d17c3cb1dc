"""What the learner has saved is listed, once: nothing that lies in ckpt/ is missing from index.json."""

from __future__ import annotations

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.dispatch import EvaluationDispatch
from remuda.coordinator.leases import LeaseBook
from remuda.tests.coordinator.holders import holder
from remuda.tests.training.commander.test_commander import config, record
from remuda.training.commander.commander import Commander, Save
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import RecordCheckpoint
from remuda.wire.messages import CheckpointReason, CheckpointSaved, Counters

LEARNER = 7


def judging() -> EvaluationDispatch:
    leases = LeaseBook(0)
    leases.open(holder(LEARNER, "learner", "worker")).ready = True
    return EvaluationDispatch("experiment", "/runs/x", Commander(config()), leases, ProgressRows(config(), None))


def saved(judged: EvaluationDispatch, request: int, reason: CheckpointReason, train_iter: int) -> list[int]:
    """Returns what is listed because of it."""
    message = CheckpointSaved(LEARNER, request, reason, record(10 * train_iter))
    steps: list[Step] = judged.saved(message, Counters(), 0.0)
    return [step.record.train_iter for step in steps if isinstance(step, RecordCheckpoint)]


def test_a_save_that_is_under_way_when_the_last_one_is_asked_for_is_listed_too() -> None:
    judged = judging()
    judged.carry_out([Save("interval")], Counters(), 0.0)
    judged.carry_out(judged.commander.save_final(), Counters(), 0.0)
    assert saved(judged, 1, "interval", 257) == [257]
    assert saved(judged, 1, "interval", 257) == [], "said again, over a restart"
    assert saved(judged, 2, "final", 264) == [264]
    assert saved(judged, 2, "final", 264) == []
