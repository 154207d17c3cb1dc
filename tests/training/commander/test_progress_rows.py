"""A row of progress.txt stands at the boundary it was due at, with the evaluation that was due there; none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from remuda.logbook.progress import ProgressRow
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.tests.coordinator.simulation import World
from remuda.training.commander.commander import Commander
from remuda.training.commander.evaluation import Awaited
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.snapshot import EvaluationResult, NewEpisodes, ProgressSnapshot
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters, MetricMean

SETTINGS = config(
    log={"progress_interval_env_steps": 100},
    evaluator={"count": 1, "episodes": 2, "interval_env_steps": 200},
    stop={"max_env_steps": 2_000},
)


def record(train_iter: int, env_step: int) -> CheckpointRecord:
    return CheckpointRecord(train_iter, env_step, 1.0, None, f"iteration_{train_iter}.pth.tar", "0" * 64, "now")


def evaluation(train_iter: int, env_step: int) -> EvaluationResult:
    return EvaluationResult(record(train_iter, env_step), (3.0, 5.0), (3, 5), 0.5)


def playing(due_env_step: int) -> Awaited:
    return Awaited(due_env_step, begun=True)


def waiting(due_env_step: int) -> Awaited:
    """For something to be learned."""
    return Awaited(due_env_step, begun=False)


def places(rows: list[ProgressRow]) -> list[tuple[int, int, int | None]]:
    """Which rows, where they stand, and where the checkpoint does whose evaluation they show."""
    return [(row.epoch, row.env_step, row.test_env_step) for row in rows]


def chunk(number: int, *returns: float) -> ChunkMeta:
    lengths = [int(value) + 1 for value in returns]
    return replace(meta_of(number, 10), episode_returns=list(returns), episode_lengths=lengths)


def test_rows_that_are_due_before_the_first_evaluation_is_over_are_not_lost() -> None:
    rows = ProgressRows(SETTINGS)
    for number in range(1, 8):
        rows.chunk(chunk(number, float(number)))
        rows.learned({"total_loss": number / 10})
        assert rows.due(Counters(env_step=50 * number, train_iter=number, episode=number), playing(0)) == []
    rows.evaluated(evaluation(0, 0))
    given = rows.due(Counters(env_step=350, train_iter=7, episode=7), waiting(300))
    assert places(given) == [(0, 0, 0), (1, 100, None), (2, 200, None)]
    assert [list(row.returns) for row in given] == [[], [1.0, 2.0], [3.0, 4.0]]
    assert [(row.train_iter, row.episode, row.losses) for row in given] == [
        (0, 0, {}),
        (2, 2, {"LossQ": 0.2}),
        (4, 4, {"LossQ": 0.4}),
    ], "as it was when they were due"
    assert [(row.env_step, list(row.returns)) for row in rows.last(Counters(env_step=350))] == [
        (300, [5.0, 6.0]),
        (350, [7.0]),
    ]


@pytest.mark.parametrize(("env_step", "shown"), [(103, 100), (199, 100)])
def test_a_row_stands_at_its_boundary_wherever_the_chunk_ended(env_step: int, shown: int) -> None:
    rows = ProgressRows(SETTINGS)
    rows.evaluated(evaluation(0, 0))
    given = rows.due(Counters(env_step=env_step, train_iter=3, wall_s=4.0))
    assert [row.env_step for row in given] == [0, shown]
    assert (given[1].train_iter, given[1].wall_s) == (3, 4.0)


def test_the_evaluation_that_is_due_at_a_boundary_is_in_the_row_of_that_boundary() -> None:
    rows = ProgressRows(SETTINGS)
    rows.evaluated(evaluation(0, 0))
    rows.due(Counters(env_step=110))
    assert rows.due(Counters(env_step=210), waiting(200)) == []
    assert rows.due(Counters(env_step=210), playing(200)) == []
    assert rows.due(Counters(env_step=330), playing(200)) == []
    rows.evaluated(evaluation(20, 210))
    assert places(rows.due(Counters(env_step=330))) == [(2, 200, 210), (3, 300, None)]


def test_what_was_learned_while_a_row_waits_at_its_step_belongs_to_it() -> None:
    rows = ProgressRows(SETTINGS)
    rows.evaluated(evaluation(0, 0))
    assert len(rows.due(Counters(env_step=200), waiting(200))) == 1
    rows.learned({"total_loss": 0.5})
    (row,) = rows.due(Counters(env_step=200, train_iter=4, wall_s=9.0))
    assert (row.train_iter, row.wall_s, row.losses) == (4, 9.0, {"LossQ": 0.5})


def test_nothing_waits_for_an_evaluation_that_cannot_begin_longer_than_to_the_next_row() -> None:
    rows = ProgressRows(SETTINGS)
    rows.evaluated(evaluation(0, 0))
    rows.due(Counters(env_step=0))
    assert rows.due(Counters(env_step=210), waiting(200)) == []
    assert places(rows.due(Counters(env_step=300), waiting(200))) == [(1, 200, None)]
    assert places(rows.due(Counters(env_step=400), waiting(400))) == [(2, 300, None)]
    rows.evaluated(evaluation(9, 390))
    assert places(rows.due(Counters(env_step=400))) == [(3, 400, 390)], "in the row after it, which waited for another"


def test_the_initial_policy_is_evaluated_in_row_0_however_late_it_was_saved() -> None:
    """The learner that was to save it may have died, and the next one saves it later."""
    rows = ProgressRows(SETTINGS)
    assert rows.due(Counters(env_step=968), playing(0)) == []
    rows.evaluated(evaluation(0, 968))
    assert places(rows.due(Counters(env_step=968))) == [(0, 0, 968), (1, 900, None)]


def test_the_last_evaluation_is_in_the_last_row_and_in_no_other() -> None:
    rows = ProgressRows(SETTINGS)
    rows.evaluated(evaluation(0, 0))
    rows.due(Counters(env_step=210), playing(200))
    rows.evaluated(evaluation(25, 250))
    assert places(rows.last(Counters(env_step=250))) == [(1, 200, None), (2, 250, 250)]
    assert rows.last(Counters(env_step=250)) == []


SEARCHING = config(
    policy={"type": "muzero", "gumbel": True},
    log={"progress_interval_env_steps": 100},
    evaluator={"episodes": 0},
    stop={"max_env_steps": 2_000},
)


def measured(number: int, **metrics: float) -> ChunkMeta:
    """Of 10 * (number + 1) steps, in which no episode ended."""
    steps = 10 * (number + 1)
    return replace(
        meta_of(number, 10), env_steps=steps, metrics={name: MetricMean(mean, steps) for name, mean in metrics.items()}
    )


def test_a_row_shows_the_means_of_the_steps_since_the_row_before() -> None:
    rows = ProgressRows(SEARCHING)
    rows.chunk(measured(0, visit_entropy_mean=0.5, completed_value_mean=2.0, undeclared=0.5))
    rows.chunk(measured(1, visit_entropy_mean=0.2))
    (first,) = rows.due(Counters(env_step=100))
    (second,) = rows.due(Counters(env_step=200))
    rows.chunk(measured(2, visit_entropy_mean=0.1))
    new = rows.news()
    assert new is not None
    again = ProgressRows(SEARCHING)
    body = msgspec.msgpack.encode(replace(rows.snapshot(), ended=new.chunks))
    again.restore(msgspec.msgpack.decode(body, type=ProgressSnapshot))
    (third,) = again.due(Counters(env_step=300))
    assert first.collected == {
        "visit_entropy_mean": pytest.approx((0.5 * 10 + 0.2 * 20) / 30),
        "completed_value_mean": 2,
    }
    assert {name: str(value) for name, value in second.collected.items()} == dict.fromkeys(first.collected, "nan")
    assert third.collected["visit_entropy_mean"] == 0.1


def test_rows_that_wait_outlive_the_coordinator() -> None:
    rows, journaled = ProgressRows(SETTINGS), list[NewEpisodes]()
    for number in range(1, 8):
        rows.chunk(chunk(number, float(number)))
        rows.due(Counters(env_step=50 * number, train_iter=number), playing(0))
        new = rows.news()
        journaled += [] if new is None else [new]
        assert new is None or len(new.chunks) <= 3, "what is new, and no row again"
    memory = replace(rows.snapshot(), ended=[each for new in journaled for each in new.chunks])
    again = ProgressRows(SETTINGS)
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(memory), type=ProgressSnapshot))
    for each in (rows, again):
        each.evaluated(evaluation(0, 0))
    now = Counters(env_step=350)
    assert again.due(now) == rows.due(now)
    assert again.snapshot().epoch == 4


def awaited() -> Iterator[Awaited | None]:
    """What the commander says it waits for, from the start of a run on."""
    commander = Commander(SETTINGS)
    yield commander.awaited(Counters())
    commander.started()
    yield commander.awaited(Counters(env_step=30))
    commander.saved("initial", record(0, 0))
    yield commander.awaited(Counters(env_step=210, train_iter=1))
    commander.evaluated(evaluation(0, 0))
    yield commander.awaited(Counters(env_step=210, train_iter=0))
    commander.progressed(Counters(env_step=210, train_iter=1))
    yield commander.awaited(Counters(env_step=450, train_iter=2))
    commander.saved("evaluation", record(2, 450))
    yield commander.awaited(Counters(env_step=450, train_iter=2))
    commander.evaluated(evaluation(2, 450))
    yield commander.awaited(Counters(env_step=450, train_iter=2))


def test_the_commander_knows_what_is_still_to_be_evaluated() -> None:
    assert list(awaited()) == [
        waiting(0), playing(0), playing(0), waiting(200), playing(200), playing(400), None
    ]  # fmt: skip


def test_where_both_intervals_agree_every_row_has_its_own_evaluation() -> None:
    """Of replay and on-policy: from row 1 on, and none stands a row late."""
    interval = 300
    log, evaluator = {"progress_interval_env_steps": interval}, {"episodes": 1, "interval_env_steps": interval}
    for settings in (config(log=log, evaluator=evaluator), on_policy_config(None, log=log, evaluator=evaluator)):
        world = World(settings)
        world.herd(collectors=2, evaluators=1)
        world.submit()
        world.run(3_000)
        assert world.experiment().state == "finished"
        rows = world.progress
        assert [row.env_step for row in rows[:-1]] == list(range(0, rows[-1].env_step, interval))
        tested = [row.test_env_step for row in rows]
        assert all(
            step is not None and 0 <= step - row.env_step < interval for step, row in zip(tested, rows, strict=True)
        )


def test_a_row_shows_the_statistics_of_values_that_spinning_up_names() -> None:
    told = {"total_loss": 0.5, "q_value": 2.0, "q_value_std": 1.0, "q_value_max": 4.0, "q_value_min": -1.0}
    rows = ProgressRows(SETTINGS)
    rows.learned(told | {"q_value_median": 1.5})
    rows.evaluated(evaluation(0, 0))
    (row,) = rows.last(Counters(env_step=0))
    assert row.losses == {"LossQ": 0.5, "AverageQVals": 2.0, "StdQVals": 1.0, "MaxQVals": 4.0, "MinQVals": -1.0}
    assert row.record()["learner/q_value_median"] == 1.5
