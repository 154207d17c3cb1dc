"""Ranks meet at a store for one lease after the other, as those of torchrun do; here they are threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from torch._C._distributed_c10d import HashStore

from remuda.config.current import with_values
from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import joined, serve_leases
from remuda.learner.ranks.leading import Followers, LearnerRanks, RankFailedError
from remuda.learner.ranks.meeting import Lease, Meeting, WaitingRank
from remuda.learner.ranks.trial import MEASURED, WARM_UP, RanksTrial
from remuda.policy.ranks import RankLostError
from remuda.tests.patience import HANG_S
from remuda.tests.policy.cases import batch
from remuda.tests.worker.leases import algorithm_of, small_config


@pytest.fixture
def meeting() -> Meeting:
    return Meeting(HashStore(), secret=b"of all ranks")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def two_ranks(**limits: float) -> ExperimentConfig:
    return small_config(learner={"batch_size": 8, "ranks": 2}, limits=limits)


def member(pool: ThreadPoolExecutor, meeting: Meeting) -> Future[None]:
    """Rank 1, once it waits for a lease."""
    served = pool.submit(serve_leases, meeting, 1, local_rank=0)
    assert meeting.gather(2, HANG_S).startswith("learner rank 1 (pid ")
    return served


def test_they_learn_under_one_lease_after_the_other(meeting: Meeting, pool: ThreadPoolExecutor) -> None:
    """Whether the lease before ended in order, or by an error in one of them."""
    config, rng = two_ranks(), np.random.default_rng(0)
    served = member(pool, meeting)
    for lease in range(3):
        alone, learning = algorithm_of(config), algorithm_of(config)
        ranks = LearnerRanks(config, learning, lambda config: Followers(meeting))
        for number in range(2):
            ranks.wait()
            if number == 1:
                changed = {"learner.learning_rate": 0.5, "policy.target_update_iters": 2}
                ranks.adjust(with_values(config, changed), changed)
                alone.adjust(with_values(config, changed))
            rows = batch(rng, rows=9)
            ranks.learn(rows)
            alone.learn(rows)
        for name, values in learning.acting_state().items():
            np.testing.assert_allclose(values, alone.acting_state()[name], rtol=1e-4, atol=1e-5)
        if lease == 1:
            broken = {**batch(rng, rows=9), "obs": np.zeros((9, 5), np.float32)}
            with pytest.raises((RankFailedError, RuntimeError, ValueError)):
                ranks.learn(broken)
        ranks.close()
    meeting.dismiss(2)
    served.result()


def test_a_trial_changes_nothing_and_ends_with_a_verdict(meeting: Meeting, pool: ThreadPoolExecutor) -> None:
    config, rng = two_ranks(), np.random.default_rng(0)
    served = member(pool, meeting)
    alone, learning = algorithm_of(config), algorithm_of(config)
    ranks = LearnerRanks(config, learning, lambda config: Followers(meeting), trial=RanksTrial(2))
    for _ in range(2 * (WARM_UP + MEASURED)):
        assert ranks.take_verdict() is None
        rows = batch(rng, rows=9)
        whole, expected = ranks.learn(rows), alone.learn(rows)
        assert whole.priorities is not None
        assert expected.priorities is not None
        np.testing.assert_allclose(whole.priorities.numpy(), expected.priorities.numpy(), rtol=1e-3, atol=1e-4)
    verdict = ranks.take_verdict()
    assert verdict is not None
    assert verdict.text.startswith("2 ranks take ")
    assert ranks.take_verdict() is None
    ranks.close()
    meeting.dismiss(2)
    served.result()


def test_an_error_in_another_rank_is_told_by_rank_0(meeting: Meeting, pool: ThreadPoolExecutor) -> None:
    """Though nothing but a broken connection is seen of it in the middle of a sum."""
    config = two_ranks()

    def fail() -> None:
        lease = meeting.next_lease(1)
        assert lease is not None
        lease.ready(1)
        group = joined(lease, meeting, 1)
        group.use_gpus("cpu")
        group.receive(0)
        group.receive(0)
        lease.fail(1, ValueError("the horse is lame"))
        group.close()

    failing = pool.submit(fail)
    ranks = LearnerRanks(config, algorithm_of(config), lambda config: Followers(meeting))
    with pytest.raises(
        RankFailedError, match=r"learner rank 1 \(pid \d+\) ended by an error: ValueError: the horse is"
    ):
        ranks.learn(batch(np.random.default_rng(0), rows=9))
    ranks.close()
    failing.result()


def test_who_does_not_come_or_is_not_ready_in_time_is_named(meeting: Meeting) -> None:
    with pytest.raises(RankLostError, match="learner rank 1, 2 did not come within 0 s"):
        meeting.gather(3, 0.0)
    with pytest.raises(RankLostError, match=r"learner rank 1 was not ready within 1e-06 s \(limits.prepare_s\)"):
        meeting.begin(Lease(two_ranks(prepare_s=1e-6), meeting.store), lambda: "")


# --- what somebody else writes into the store ---
def test_a_rank_begins_nothing_that_somebody_without_the_key_names(meeting: Meeting, pool: ThreadPoolExecutor) -> None:
    served = member(pool, meeting)
    with pytest.raises(RankLostError, match="not ready within"):
        replace(meeting, secret=b"guessed").begin(Lease(two_ranks(prepare_s=0.5), meeting.store), lambda: "")
    with pytest.raises(RankLostError, match="learner rank 0 has another key: all ranks need the same connection file"):
        served.result()


def test_a_beginning_is_for_one_lease_of_one_process(meeting: Meeting, pool: ThreadPoolExecutor) -> None:
    """Somebody repeats one that was sealed for another."""
    meeting.store.set("here 1", msgspec.json.encode(WaitingRank(1, "two", 7, "former")).decode())
    with pytest.raises(RankLostError, match="not ready within"):
        meeting.begin(Lease(two_ranks(prepare_s=1e-6), meeting.store), lambda: "")
    meeting.store.delete_key("here 1")
    waits = pool.submit(meeting.next_lease, 1)
    meeting.gather(2, HANG_S)
    now = msgspec.json.decode(meeting.store.get("here 1"), type=WaitingRank)
    meeting.store.set(f"begin {now.nonce}", meeting.store.get("begin former"))  # type: ignore[arg-type]
    with pytest.raises(RankLostError, match="learner rank 0 has another key"):
        waits.result()


def test_a_restarted_rank_is_found_beside_its_former_word(meeting: Meeting, pool: ThreadPoolExecutor) -> None:
    former = WaitingRank(1, "two", 7, "former")
    meeting.store.set("here 1", msgspec.json.encode(former).decode())
    config = two_ranks()
    began = pool.submit(LearnerRanks, config, algorithm_of(config), lambda config: Followers(meeting))
    meeting.store.wait(["begin former"])
    served = pool.submit(serve_leases, meeting, 1, local_rank=0)
    ranks = began.result()
    assert "two" not in ranks.describe(), "the process that is there now"
    ranks.close()
    meeting.dismiss(2)
    served.result()
