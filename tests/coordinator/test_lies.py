"""Lying messages end nothing: not the coordinator, not a run, and no honest worker's work.

Some by default, a million with `make faults`. Mutated messages: tests/security/test_frames.py.
"""

from __future__ import annotations

import os
import random
import resource
from itertools import count

import numpy as np
import pytest

from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.coordinator.experiment.flow import STALLED_S
from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.tests.coordinator.lies import Liar
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.keys import somebody_for
from remuda.wire.codec import Envelope, encode
from remuda.wire.messages import Rejected
from remuda.wire.sockets import worker_identity

SHORT, LONG = 1_000, 1_000_000
PER_WORLD = 500
MOST_GROWTH_BYTES = 600 << 20
LONGEST_STALL_S = 2 * STALLED_S
"""Of the world's time: a liar may keep its credit for so long."""


def messages_to_try() -> int:
    return LONG if os.environ.get("REMUDA_FAULTS") == "long" else SHORT


class Besieged(World):
    """A run in the middle of its work, with two workers that lie and any number of strangers."""

    def __init__(self, seed: int) -> None:
        settings: dict[str, object] = {"stop": {"max_env_steps": 10**9}, "collector": {"count": 3}}
        replay = {**settings, "collector": {"count": 3, "chunk_env_steps": 64}}
        super().__init__(config(**replay) if seed % 2 else on_policy_config(0, **settings), seed=seed)
        self.connections = count(1)
        self.herd(collectors=3, evaluators=1, learners=1)
        self.submit()
        while not self.status().experiments or self.experiment().train_iter < 30:
            self.step()
            assert not any(run.state == "failed" for run in self.status().experiments), self.said[-5:]
        self.liars = [self.honest("collector")[0]]

    def honest(self, role: str) -> list[Worker]:
        liars = getattr(self, "liars", [])
        return [each for each in self.workers.values() if each.role == role and each not in liars]

    def peer(self, chance: random.Random) -> bytes:
        """Whose connection a lie comes over: a liar's of the herd, its old one, a stranger's, a client's."""
        liar = chance.choice(self.liars)
        fresh = next(self.connections)
        return chance.choice(
            (
                liar.peer,
                liar.peer,
                worker_identity(liar.uuid, liar.incarnation, "old", fresh),
                worker_identity("99999999-9999-4999-8999-999999999999", 1, "x", fresh % 5),
                f"client:{fresh % 7}".encode(),
                b"",
                b"\xff\xfe",
            )
        )

    def hear(self, peer: bytes, envelope: Envelope) -> None:
        effects = self.coordinator.handle(Received(peer, envelope, somebody_for(envelope.message)), self.now_s)
        self.coordinator.journal_entries(self.now_s)
        sent = [effect for effect in effects if isinstance(effect, fx.Send)]
        for send in sent:
            if not isinstance(send.envelope.message, Rejected):
                encode(send.envelope)
        self.heard_by_honest(sent)

    def heard_by_honest(self, sent: list[fx.Send]) -> None:
        honest = {each.peer for each in self.workers.values() if each not in self.liars}
        self.apply([send for send in sent if send.peer in honest])


def test_no_lie_ends_anything() -> None:
    tried = believed = 0
    grown_from = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in count():
        if tried >= messages_to_try():
            break
        world, chance = Besieged(seed), random.Random(seed)
        liar = Liar(world, seed)
        learner, [evaluator] = world.honest("learner")[0], world.honest("evaluator")
        ids: dict[bytes, int] = {}
        for number in range(PER_WORLD):
            tried += 1
            peer = world.peer(chance)
            id = ids[peer] = ids.get(peer, 10_000) + 1
            envelope = liar.envelope(id)
            if envelope is not None:
                believed += 1
                world.hear(peer, Envelope(id, envelope.reply_to, id, envelope.message))
            if number % 50 == 0:
                world.step()
                if not any(each.uuid == world.liars[0].uuid for each in world.coordinator.registry):
                    world.liars[0] = world.restart(world.liars[0])
                    world.step()
        before = world.experiment()
        assert before.state == "running", f"seed {seed}: {before}; {world.said[-5:]}"
        assert learner.assignments == [learner.lease], f"seed {seed}: the learner was replaced"
        assert evaluator.assignments == [evaluator.lease], f"seed {seed}: the evaluator was replaced"
        give_up_s = world.now_s + LONGEST_STALL_S
        while world.experiment().train_iter == before.train_iter and world.now_s < give_up_s:
            world.step()
        after = world.experiment()
        assert after.train_iter > before.train_iter, f"seed {seed}: it does not go on: {after}; {world.said[-5:]}"
    assert believed > tried // 4, "most are well-formed"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown_from < MOST_GROWTH_BYTES >> 10


@pytest.mark.parametrize("returns", [[np.inf, -np.inf], [1e308, 1e308], [np.nan, 1.0]])
def test_returns_that_have_no_mean_are_no_best_and_end_nothing(returns: list[float]) -> None:
    world = World(config(evaluator={"count": 1, "episodes": 2, "interval_env_steps": 500}))
    world.skill = lambda env_step: returns[env_step % 2]  # type: ignore[method-assign]
    world.herd(collectors=2)
    world.submit()
    world.run()
    assert world.experiment().state == "finished"
