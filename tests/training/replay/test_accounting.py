"""What is counted can be sampled, what is refused leaves no trace, and nothing is counted twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport
from remuda.tests.buffer.chunks import WORKER, meta_of
from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.tests.worker.leases import small_config
from remuda.training.replay.accounting import Accepted, ReplayAccounting
from remuda.wire.messages import Counters, PolicyRef

ROWS = 20
LEASE = 3


def accounting(*, capacity: int = 100, min_rows: int = 40, samples_per_insert: float | None = None) -> ReplayAccounting:
    buffer = {"capacity": capacity, "min_rows": min_rows, "samples_per_insert": samples_per_insert}
    return opened(ReplayAccounting(small_config(buffer=buffer), 0.0))


def opened(held: ReplayAccounting) -> ReplayAccounting:
    held.ledger.open(LEASE, WORKER, 1)
    return held


def totals(held: ReplayAccounting) -> tuple[int, int, int, frozenset[str]]:
    return held.ledger.env_step, held.ledger.rows, held.ledger.episode, held.live_files()


def test_a_chunk_counts_once() -> None:
    held = accounting()
    meta = replace(meta_of(0, ROWS), env_steps=21, episode_returns=[9.0, 10.0], episode_lengths=[9, 10])
    assert held.accept(meta, LEASE) == Accepted(fresh=True)
    expected = (21, ROWS, 2, frozenset({meta.file}))
    assert totals(held) == expected
    assert held.accept(meta, LEASE) == Accepted(fresh=False)
    assert totals(held) == expected


def test_offline_a_dataset_comes_once_and_updates_count_as_steps() -> None:
    config = small_config(
        collector={"dataset": "walks"}, buffer={"capacity": 100, "min_rows": 50}, stop={"max_env_steps": 30}
    )
    held = opened(ReplayAccounting(config, 0.0))
    assert (config.collector.count, held.is_filled, held.sampleable_batches(1)) == (1, False, 0)
    meta = replace(meta_of(0, ROWS), env_steps=0)
    again = replace(meta, chunk=replace(meta.chunk, incarnation=2), file="again")
    assert held.accept(meta, LEASE).fresh
    assert held.is_filled
    held.ledger.open(LEASE + 1, WORKER, 2)
    assert held.accept(again, LEASE + 1) == held.count_late(again) == Accepted(fresh=False, deletable=("again",))
    assert held.accept(meta, LEASE) == Accepted(fresh=False), "repeated, and its file is needed"
    assert totals(held) == (0, ROWS, 0, frozenset({meta.file}))
    assert held.sampleable_batches(1) > 0, "buffer.min_rows is for runs that collect"
    assert held.batches_owed() is None
    held.note_updates(12)
    held.note_updates(8)  # a report that came late
    assert (held.ledger.env_step, held.env_steps_left()) == (12, 18)
    assert held.allowed_batches(100, 12) == 18


def test_on_policy_each_period_says_how_often_rows_were_used_and_how_stale_they_were() -> None:
    held = opened(ReplayAccounting(on_policy_config(2), 0.0))
    policy, slots = PolicyRef(1, 3, 3), held.plan.slots_per_row
    for sequence in range(held.plan.rows_per_update):
        meta = replace(meta_of(sequence, 1), policy=policy, env_steps=slots)
        assert held.accept(meta, LEASE).rejected is None
    held.sample(1, held.plan.rows_per_update, 4)
    held.hand_out_new()
    counters = Counters(train_iter=5, env_step=held.ledger.env_step, episode=3)
    used, flow = held.reports(counters, 61.0, newest=PolicyRef(1, 5, 5))
    assert isinstance(used, BufferSampleReport)
    assert (used.use_avg, used.use_max, used.staleness_avg, used.staleness_max) == (1.0, 1, 1.0, 1)
    assert isinstance(flow, BufferThroughputReport)
    assert (flow.samples_per_insert, flow.policy_lag) == (1.0, 2)
    assert (flow.current_have, flow.num_transitions, flow.num_collected_episodes) == (0, 0, 3)
    assert flow.payload_bytes == held.plan.rows_per_update * meta.payload_bytes, "the learner has not said it has them"
    assert [report.topic for report in held.reports(counters, 122.0)] == ["buffer_throughput"], "nothing was drawn"


def test_batches_are_owed_for_what_came_after_the_warm_up() -> None:
    held = accounting(min_rows=40, samples_per_insert=2.0)
    batch = held.plan.rows_per_update
    assert held.batches_owed() == 0
    for sequence in range(4):
        held.accept(meta_of(sequence, ROWS), LEASE)
    owed = 2 * (4 * ROWS - 40) // batch
    assert held.batches_owed() == owed > 1
    held.sample(1, batch, 0)
    assert held.batches_owed() == owed - 1
    assert accounting().batches_owed() is None, "nothing says how many"


def test_a_chunk_larger_than_the_buffer_is_refused_and_not_counted() -> None:
    held = accounting(capacity=ROWS, min_rows=1)
    accepted = held.accept(meta_of(0, ROWS + 1), LEASE)
    assert not accepted.fresh
    assert accepted.rejected is not None
    assert "raise buffer.capacity" in accepted.rejected
    assert totals(held) == (0, 0, 0, frozenset())
    assert held.accept(meta_of(0, ROWS), LEASE).fresh  # its number was not used up


def test_a_chunk_the_ledger_refuses_is_not_sampled_either() -> None:
    held = accounting(capacity=10, min_rows=1)
    sequence = 1
    while (accepted := held.accept(meta_of(sequence, 1), LEASE)).fresh:
        sequence += 2  # every other one is missing
        assert sequence < 20_000
    assert accepted.rejected is not None
    assert "gaps" in accepted.rejected
    assert meta_of(sequence, 1).file not in held.live_files()
    before = totals(held)
    assert held.accept(meta_of(sequence, 1), LEASE).rejected is not None
    assert totals(held) == before


def test_policy_lag_counts_versions_within_an_epoch() -> None:
    held = accounting()
    held.accept(replace(meta_of(0, ROWS), policy=PolicyRef(2, 5, 50)), LEASE)
    assert held.policy_lag(PolicyRef(2, 8, 80)) == 3
    assert held.policy_lag(PolicyRef(2, 4, 40)) == 0
    assert held.policy_lag(PolicyRef(3, 0, 50)) == 0  # a new learner: not comparable


def test_batches_are_counted_from_the_begin_of_the_run_over_a_restart() -> None:
    held, again = accounting(), accounting()
    held.accept(meta_of(0, 50), LEASE)
    size = held.plan.rows_per_update
    held.sample(150, size, train_iter=3)
    again.restore(held.snapshot(), [], 5.0)
    opened(again).accept(meta_of(1, 50), LEASE)
    again.sample(60, size, train_iter=4)
    (report,) = again.reports(Counters(train_iter=4), 6.0)
    assert isinstance(report, BufferSampleReport)
    assert report.sample_count == 210


def test_its_tables_are_handed_over_once() -> None:
    held = accounting()
    held.accept(meta_of(0, 50), LEASE)
    assert held.reports(Counters(), 1.0) == []
    held.sample(200, 8, train_iter=3)  # the default interval is 200 batches
    held.sample(1, 8, train_iter=3)
    topics = [report.topic for report in held.reports(Counters(train_iter=3), 2.0)]
    assert topics == ["buffer_sample"]
    assert held.reports(Counters(train_iter=3), 3.0) == []
    assert [report.topic for report in held.reports(Counters(train_iter=3), 61.0)] == ["buffer_throughput"]
    held.sample(200, 8, train_iter=4)
    topics = [report.topic for report in held.reports(Counters(train_iter=4), 70.0, last=True)]
    assert topics == ["buffer_sample", "buffer_throughput"]  # a run that ends leaves nothing unsaid


@pytest.mark.parametrize("less", [{"capacity": 40}, {"quota_bytes": 250}])
def test_a_smaller_buffer_lets_go_of_files_for_which_it_has_no_room(less: dict[str, int]) -> None:
    """They stayed in data/ for good, and were in no quota."""
    held = ReplayAccounting(small_config(buffer={"capacity": 100, "min_rows": 40}), 0.0)
    opened(held)
    metas = [meta_of(sequence, ROWS) for sequence in range(5)]
    for meta in metas:
        assert held.accept(meta, LEASE).fresh
    chunks, _ = held.news()
    buffer = {"capacity": 100, "min_rows": 40, **less}
    smaller = ReplayAccounting(small_config(collector={"count": 1}, buffer=buffer), 0.0, serial=True)
    deletable = smaller.resume(held.snapshot(), chunks, 5.0)
    assert deletable == tuple(meta.file for meta in metas[:3])
    assert smaller.news() == ((), (0, ROWS, 2 * ROWS))
    assert smaller.live_files() == {meta.file for meta in metas[3:]}
    late = smaller.count_late(meta_of(7, ROWS))
    assert late.deletable == (metas[3].file,)
    refused = smaller.count_late(meta_of(8, 101))
    assert (refused.fresh, refused.deletable) == (False, (meta_of(8, 101).file,))


@pytest.mark.parametrize("of", [config(), on_policy_config(0)])
def test_a_run_whose_payloads_are_lost_collects_until_its_learner_can_go_on(of: ExperimentConfig) -> None:
    """From a bucket without payloads: the learner waited for rows, and the collectors for the learner."""
    of = of.model_copy(update={"collector": of.collector.model_copy(update={"count": 1})})
    before = opened(ReplayAccounting(of, 0.0))
    fill(before, LEASE, 1)
    after = ReplayAccounting(of, 0.0)
    after.resume(before.snapshot(), (), 5.0)
    after.ledger.open(LEASE + 1, WORKER, 2)
    assert after.sampleable_batches(after.plan.rows_per_update) == 0
    fill(after, LEASE + 1, 2)
    assert after.sampleable_batches(after.plan.rows_per_update) > 0


def fill(held: ReplayAccounting, lease: int, incarnation: int) -> None:
    """Let in as many rows as may come while nobody learns."""
    for sequence in range(1000):
        if held.index.insertable_rows() == 0:
            return
        meta = meta_of(sequence, 1)
        meta = replace(meta, chunk=replace(meta.chunk, incarnation=incarnation), env_steps=held.plan.slots_per_row)
        assert held.accept(meta, lease).fresh
    raise AssertionError("rows come without an end")


@pytest.mark.parametrize(("env_step", "left"), [(0, 3_000), (2_999, 1), (3_063, 0)])
def test_of_the_environment_steps_those_that_are_left(env_step: int, left: int) -> None:
    bounded = config(stop={"max_env_steps": 3_000})
    replay = ReplayAccounting(bounded, 0.0)
    replay.ledger.env_step = env_step
    assert replay.env_steps_left() == left


@pytest.mark.parametrize(("train_iter", "batches"), [(6, 4), (7, 3), (12, 0)])
def test_of_four_batches_those_that_are_left_of_ten_updates(train_iter: int, batches: int) -> None:
    bounded = config(stop={"max_env_steps": 3_000, "max_train_iters": 10})
    assert ReplayAccounting(bounded, 0.0).allowed_batches(4, train_iter) == batches
    assert ReplayAccounting(config(), 0.0).allowed_batches(4, 10**9) == 4, "without a bound all"
    on_policy = on_policy_config(0, stop={"max_env_steps": 3_000, "max_train_iters": 10})
    assert ReplayAccounting(on_policy, 0.0).allowed_batches(1, 12) == 1, "the commander alone ends the run"
