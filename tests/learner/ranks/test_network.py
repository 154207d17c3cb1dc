"""Ranks of other processes and hosts: who is let in, what happens to leases, and how their end is noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import msgspec
import numpy as np
import pytest
import zmq

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import Here
from remuda.learner.ranks.joining import RankConnection, join
from remuda.learner.ranks.leading import LearnerRanks
from remuda.learner.ranks.line import HEADER, Message
from remuda.learner.ranks.network_line import ranks_pair
from remuda.learner.ranks.server import RankServer, TooFewRanksError
from remuda.learner.ranks.trial import MEASURED, WARM_UP, RanksTrial
from remuda.policy.ranks import RankLostError
from remuda.tests.ipv6 import needs_ipv6
from remuda.tests.learner.ranks.network import PAIR, WORKER, hello
from remuda.tests.patience import HANG_S, until
from remuda.tests.policy.cases import batch
from remuda.tests.worker.leases import algorithm_of, small_config
from remuda.wire.keys.pair import KeyPair, new_pair
from remuda.worker.serve import leaves_doubt


@pytest.fixture
def server() -> Iterator[RankServer]:
    with closing(RankServer("tcp://127.0.0.1:0", PAIR, 2, timeout_s=HANG_S)) as server:
        yield server


def address(server: RankServer) -> str:
    return f"tcp://127.0.0.1:{server.port}"


def two_ranks(**limits: float) -> ExperimentConfig:
    return small_config(learner={"batch_size": 8, "ranks": 2}, limits=limits)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def joined(
    pool: ThreadPoolExecutor, server: RankServer, pair: KeyPair = PAIR, within_s: float = HANG_S
) -> Future[None]:
    return pool.submit(lambda: join(1, 0, pair, lambda: address(server), within_s=within_s, timeout_s=HANG_S))


# --- who is let in ---


def test_all_ranks_of_a_group_have_a_pair_of_keys_that_follows_from_the_workers() -> None:
    assert ranks_pair(WORKER, "group") == PAIR
    assert ranks_pair(WORKER, "another group").public != PAIR.public
    assert ranks_pair(new_pair("worker"), "group").public != PAIR.public
    assert PAIR.public != WORKER.public


STRANGERS: dict[str, Callable[[zmq.Socket[bytes]], None]] = {}


def stranger(name: str) -> Callable[[Callable[[zmq.Socket[bytes]], None]], None]:
    def note(dress: Callable[[zmq.Socket[bytes]], None]) -> None:
        STRANGERS[name] = dress

    return note


@stranger("without a key")
def _(socket: zmq.Socket[bytes]) -> None:
    pass


@stranger("with a key of its own, and the right one of rank 0")
def _(socket: zmq.Socket[bytes]) -> None:
    own = new_pair("stranger")
    socket.curve_serverkey = PAIR.public_bytes
    socket.curve_publickey, socket.curve_secretkey = own.public_bytes, own.secret


@stranger("of another group with the same worker's key")
def _(socket: zmq.Socket[bytes]) -> None:
    other = ranks_pair(WORKER, "another group")
    socket.curve_serverkey = socket.curve_publickey = other.public_bytes
    socket.curve_secretkey = other.secret


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_is_not_let_in_and_keeps_nobody_out(server: RankServer, pool: ThreadPoolExecutor, who: str) -> None:
    """It says hello first, as rank 1; rank 1 comes all the same, and what the stranger said is never read."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    try:
        STRANGERS[who](socket)
        socket.connect(address(server))
        socket.send_multipart([HEADER.pack(Message.HELLO, 0), msgspec.json.encode(Here(1, "stranger", 1))])
        with pytest.raises(
            RankLostError, match=r"learner rank 1 did not come within 0.5 s: all ranks need the same con"
        ):
            server.gather(0.5)
        member = joined(pool, server)
        assert "stranger" not in server.gather(HANG_S)
        server.close(leave=True)
        member.result()
    finally:
        socket.close()
        context.term()


@needs_ipv6
@pytest.mark.parametrize("listens", ["[::1]", "[::]"])
def test_ranks_find_each_other_over_ipv6(listens: str) -> None:
    with (
        closing(RankServer(f"tcp://{listens}:0", PAIR, 2, timeout_s=HANG_S)) as server,
        closing(RankConnection(f"tcp://[::1]:{server.port}", PAIR)) as connection,
    ):
        hello(connection.line(HANG_S), 1)
        assert server.gather(HANG_S) == "learner rank 1 (pid 101 on two)"


def test_a_rank_with_another_key_says_what_all_need(server: RankServer, pool: ThreadPoolExecutor) -> None:
    other = joined(pool, server, ranks_pair(new_pair("worker"), "group"), within_s=0.1)
    with pytest.raises(RankLostError, match="did not come"):
        server.gather(0.5)
    with pytest.raises(
        RankLostError, match=r"did not let this rank in within 0.1 s: all ranks need the same connection"
    ):
        other.result()


def test_nobody_takes_the_place_of_a_rank_that_is_there(server: RankServer, pool: ThreadPoolExecutor) -> None:
    """Nor one that does not exist."""
    with (
        closing(RankConnection(address(server), PAIR)) as first,
        closing(RankConnection(address(server), PAIR)) as second,
    ):
        hello(first.line(HANG_S), 1)
        assert server.gather(HANG_S) == "learner rank 1 (pid 101 on two)"
        for rank in (0, 1, 2):
            hello(second.line(HANG_S), rank)
        second.line(HANG_S).send(Message.FAILED, b"from the second")
        (line,) = server.lease(two_ranks()).lines
        line.skip_to(Message.HELLO, timeout_s=HANG_S)
        with pytest.raises(RankLostError, match=r"did not answer within 0.3 s"):
            line.expect(Message.RESULT, 0.3)


# --- leases ---


def test_they_learn_under_one_lease_after_the_other(server: RankServer, pool: ThreadPoolExecutor) -> None:
    """Whether the lease before ended in order, or by an error in one of them."""
    config, rng = two_ranks(), np.random.default_rng(0)
    member = joined(pool, server)
    server.gather(HANG_S)
    for lease in range(3):
        alone, learning = algorithm_of(config), algorithm_of(config)
        ranks = LearnerRanks(config, learning, server.lease)
        assert ranks.describe().startswith("rank 1: pid ")
        for _ in range(2):
            ranks.wait()
            rows = batch(rng, rows=9)
            ranks.learn(rows)
            alone.learn(rows)
        for name, values in learning.acting_state().items():
            np.testing.assert_allclose(values, alone.acting_state()[name], rtol=1e-4, atol=1e-5)
        if lease == 1:
            broken = {**batch(rng, rows=9), "obs": np.zeros((9, 5), np.float32)}
            with pytest.raises((RankLostError, RuntimeError, ValueError)) as error:
                ranks.learn(broken)
            assert not leaves_doubt(error.value)
        ranks.close()
    server.close(leave=True)
    member.result()


def test_a_trial_changes_nothing_and_ends_with_a_verdict(server: RankServer, pool: ThreadPoolExecutor) -> None:
    config, rng = two_ranks(), np.random.default_rng(0)
    member = joined(pool, server)
    server.gather(HANG_S)
    alone, learning = algorithm_of(config), algorithm_of(config)
    ranks = LearnerRanks(config, learning, server.lease, trial=RanksTrial(2))
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
    server.close(leave=True)
    member.result()


def test_more_ranks_than_were_started_are_refused(server: RankServer) -> None:
    config = small_config(learner={"batch_size": 8, "ranks": 3})
    with pytest.raises(TooFewRanksError, match=r"learner.ranks is 3, and this learner was started with 2 ranks"):
        server.lease(config)


# --- ends ---


def test_the_end_of_a_rank_is_noticed(server: RankServer) -> None:
    with closing(RankConnection(address(server), PAIR)) as connection:
        hello(connection.line(HANG_S), 1)
        server.gather(HANG_S)
        followers = server.lease(two_ranks())
        followers.check()
        followers.lines[0].skip_to(Message.HELLO, timeout_s=HANG_S)
    gone = r"learner rank 1 \(pid 101 on two\) has ended, or its connection is broken"
    with pytest.raises(RankLostError, match=gone):
        followers.lines[0].receive()
    with pytest.raises(RankLostError, match=gone) as error:
        followers.check()
    followers.close()
    assert leaves_doubt(error.value), "only torchrun can start it again"


def test_a_rank_that_hangs_cannot_be_had_again(server: RankServer) -> None:
    """What it may still send would be about the lease before, so the group is started again."""
    with closing(RankConnection(address(server), PAIR)) as connection:
        line = connection.line(HANG_S)
        hello(line, 1)
        server.gather(HANG_S)
        config, ready = two_ranks(rank_s=0.2), threading.Thread(target=line.send, args=(Message.READY,))
        ready.start()
        ranks = LearnerRanks(config, algorithm_of(config), server.lease)
        ready.join()
        with pytest.raises(RankLostError, match=r"did not answer within 0.2 s \(limits.rank_s\)") as error:
            ranks.learn(batch(np.random.default_rng(0), rows=9))
        ranks.close()
    assert leaves_doubt(error.value)


def test_a_rank_notices_the_end_of_rank_0(server: RankServer, pool: ThreadPoolExecutor) -> None:
    """Without a word, as when it is killed."""
    member = joined(pool, server)
    server.gather(HANG_S)
    server.close()
    with pytest.raises(RankLostError, match="learner rank 0 has ended, or its connection is broken"):
        member.result()


def test_a_rank_looks_for_rank_0_again_where_it_is_now(pool: ThreadPoolExecutor) -> None:
    """The address that it was told first may be of a rank 0 that was killed."""
    ports, told = [9], list[int]()

    def find() -> str:
        told.append(ports[-1])
        return f"tcp://127.0.0.1:{ports[-1]}"

    member = pool.submit(lambda: join(1, 0, PAIR, find, within_s=HANG_S, timeout_s=HANG_S))
    until(lambda: bool(told), "it has asked")
    with closing(RankServer("tcp://127.0.0.1:0", PAIR, 2, timeout_s=HANG_S)) as server:
        ports.append(server.port)
        server.gather(HANG_S)
        server.close(leave=True)
        member.result()
    assert (told[0], told[-1]) == tuple(ports), "first where nobody listens, then where rank 0 let it in"
