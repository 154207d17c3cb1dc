"""19, 20. A policy file that is damaged or made to harm is refused, and the policy from before is kept. (Checkpoints:
test_checkpoints.py. Every flipped bit and every truncation: tests/policy/files/test_policy_file.py. Weights that are
not finite: tests/learner/test_publisher.py.)"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remuda.policy.files.policy_file import publish
from remuda.tests.collector.test_service import Coordinator
from remuda.tests.poison import Poison
from remuda.tests.policy.files.published import STATE, never
from remuda.tests.worker.leases import EXPERIMENT
from remuda.wire.messages import PolicyRef


def flipped(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def a_pickle(content: bytes) -> bytes:
    import pickle  # noqa: TID251 - what must never be opened

    return pickle.dumps(Poison(Path("canary")))


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    monkeypatch.chdir(tmp_path)
    opened = Coordinator(tmp_path)
    yield opened
    for work in opened.works:
        work.close()


@pytest.mark.parametrize("damage", [flipped, a_pickle])
def test_a_collector_keeps_its_policy_until_there_is_a_sound_one(
    coordinator: Coordinator, damage: Callable[[bytes], bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    work = coordinator.begin()
    coordinator.collect(work, 16)
    file = coordinator.run.policy_file(EXPERIMENT, 0)
    coordinator.publish(PolicyRef(1, 1, 10))
    file.write_bytes(damage(file.read_bytes()))
    coordinator.collect(work, 64)
    assert {meta.policy for meta in coordinator.metas} == {PolicyRef(1, 0, 0)}
    assert coordinator.env_steps >= 64, "it goes on"
    assert not os.path.exists("canary")
    log = next((coordinator.run.log / "collector").iterdir()).read_text()
    assert log.count("keeps the policy of version 0") == 1, log
    coordinator.publish(PolicyRef(1, 2, 20))
    coordinator.collect(work, 96)
    assert coordinator.metas[-1].policy == PolicyRef(1, 2, 20)


def test_a_policy_of_other_shapes_is_an_error_that_names_them(coordinator: Coordinator) -> None:
    """It is whole, and not of this run: nobody acts with it."""
    work = coordinator.begin()
    coordinator.collect(work, 16)
    file = coordinator.run.policy_file(EXPERIMENT, 0)
    coordinator.newest = PolicyRef(1, 3, 30)
    publish(file, STATE, coordinator.newest, warn=never)
    with pytest.raises((ValueError, KeyError, RuntimeError)):
        coordinator.collect(work, 64)
