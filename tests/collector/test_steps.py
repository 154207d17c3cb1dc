"""Files of steps: every bit comes back, also before a torn end; a changed observation has another fingerprint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.collector.steps import Steps, differing_slots, fingerprints, newest_images, read_steps
from remuda.environments.spaces import Array
from remuda.tests.collector.parts import drawn, write_part


@pytest.mark.parametrize(
    ("slots", "actions", "flush"),
    [(7, 6, True), (1, 6, False), (400, 300, False)],
    ids=["a block per chunk", "many chunks in a block", "many blocks per chunk"],
)
def test_every_bit_comes_back(tmp_path: Path, slots: int, actions: int, flush: bool) -> None:
    path = write_part(tmp_path, chunks=5, slots=slots, actions=actions, flush=flush)
    (part,) = read_steps(path)
    kept, written = (
        part.policies[0].steps,
        Steps.joined([drawn(slots, seed=n, actions=actions).steps() for n in range(5)]),
    )
    assert kept.actions.tobytes() == written.actions.tobytes()
    assert not differing_slots(kept, written).any()
    by_chunk = {number: (version, 0) for _, _, number, _, version in part.chunks}
    assert by_chunk == {number: (10 * number, 0) for number in range(5)}
    assert sum(each for *_, each, _ in part.chunks) == part.slots == 5 * slots


def test_a_torn_end_costs_only_the_last_chunk(tmp_path: Path) -> None:
    path = write_part(tmp_path, chunks=3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    (part,) = read_steps(path)
    assert [number for _, _, number, _, _ in part.chunks] == [0, 1]


@pytest.mark.parametrize("shape", [(3,), (4,), (5, 2), (4, 12, 12)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_each_changed_bit_of_an_observation_shows(shape: tuple[int, ...], dtype: type) -> None:
    rng = np.random.default_rng(1)
    seen: Array = rng.integers(0, 200, (2, 3, *shape)).astype(dtype)
    before = fingerprints(newest_images(seen))
    for _ in range(30):
        changed = seen.copy()
        raw = changed[1, 2].reshape(-1).view(np.uint8)
        newest = raw[-len(raw) // shape[0] :] if len(shape) == 3 and dtype == np.uint8 else raw  # of a stack of images
        newest[rng.integers(len(newest))] ^= np.uint8(1 << rng.integers(8))
        assert np.argwhere(fingerprints(newest_images(changed)) != before).tolist() == [[1, 2]]
