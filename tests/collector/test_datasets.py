"""Counted episodes come out of stored rows as they happened, and into Minari's files and back without a changed bit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from remuda.buffer.chunk import Columns
from remuda.buffer.episodes import DatasetError, Episodes, counted_episodes, read_dataset, write_dataset
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.spaces import Space
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.collector.test_rollout import DISCOUNT, rollout_of
from remuda.tests.environments.scripted import ScriptedEnv, Step
from remuda.training.replay import dataset
from remuda.training.replay.dataset import fitting_episodes, rows_of
from remuda.wire.messages import ChunkId, ChunkMeta

WORKER = "00000000-0000-4000-8000-000000000001"
Seen = tuple[list[list[float]], list[int], list[float], list[bool]]


@settings(deadline=None)
@given(
    num_envs=st.integers(1, 4),
    n_step=st.integers(1, 4),
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=6),
    fails=st.booleans(),
    lost=st.integers(0, 3),
)
def test_episodes_are_those_that_happened_and_the_rest_is_reported(
    num_envs: int, n_step: int, seed: int, sizes: list[int], fails: bool, lost: int
) -> None:
    """`fails`: an environment breaks between the chunks, and all begin again. `lost`: the oldest chunks are evicted."""
    envs = [ScriptedEnv(i) for i in range(num_envs)]
    rollout = rollout_of(envs, n_step=n_step, seed=seed)
    chunks: list[tuple[ChunkMeta, Columns]] = []
    for sequence, size in enumerate(sizes):
        if fails and sequence == len(sizes) // 2:
            envs[0].fails_in = 1
            with pytest.raises(RuntimeError, match="the simulator broke"):
                rollout.collect(num_envs, {})
        collected = rollout.collect(size, {"epsilon": 0.5})
        chunks.append((collected.meta(ChunkId(WORKER, 0, sequence)), collected.columns))
    counted = sum(len(meta.episode_lengths) for meta, _ in chunks[lost:])
    found, missing = counted_episodes(chunks[lost:])
    happened = [episode for env in envs for episode in _episodes(env.log)]
    known = [] if found is None else _seen(found)
    assert all(episode in happened for episode in known)
    assert len({str(episode) for episode in known}) == len(known)
    assert len(known) + missing == counted
    if not fails and not lost:
        assert missing == 0


def _episodes(log: list[Step]) -> list[Seen]:
    """The finished episodes of one environment, numbers as columns hold them. A failed step begins a new one."""
    found: list[Seen] = []
    part: list[Step] = []
    for step in log:
        if part and step.obs[1] != part[0].obs[1]:
            part = []
        part.append(step)
        if step.terminated or step.truncated:
            observations = [list(one.obs) for one in part] + [list(step.next_obs)]
            rewards = [float(np.float32(one.reward)) for one in part]
            found.append((observations, [one.action for one in part], rewards, [one.terminated for one in part]))
            part = []
    return found


def _seen(episodes: Episodes) -> list[Seen]:
    found: list[Seen] = []
    end = 0
    for index, steps in enumerate(episodes.lengths.tolist()):
        own, end = slice(end, end + steps), end + steps
        observations = episodes.observations[own.start + index : end + index + 1].tolist()
        each = (episodes.actions, episodes.rewards, episodes.terminated)
        found.append((observations, *(column[own].tolist() for column in each)))
    return found


def _made() -> Episodes:
    rng = np.random.default_rng(0)
    lengths = np.array([3, 1, 5])
    return Episodes(
        rng.integers(0, 255, (12, 32, 33), dtype=np.uint8),  # Minari would store it as JPEG, which loses bits
        rng.uniform(-1, 1, (9, 2)).astype(np.float32),
        rng.standard_normal(9).astype(np.float32),
        np.array([0, 0, 1, 0, 0, 0, 0, 0, 1], np.bool_),
        lengths,
    )


def test_minari_reads_every_array_as_written_and_a_second_dataset_needs_another_name(tmp_path: Path) -> None:
    minari = pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
    pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")
    made, folder = _made(), tmp_path / "some" / "made-v3"
    space = spaces.Box(0, 255, (32, 33), np.uint8), spaces.Box(-1, 1, (2,), np.float32)
    write_dataset(folder, made, spaces=space, env_spec=None, algorithm="sac", text="made")
    opened = minari.MinariDataset(folder / "data")
    read = [*opened.iterate_episodes()]
    assert (opened.id, opened.total_episodes, opened.total_steps) == ("made-v3", 3, 9)
    assert [len(one) for one in read] == made.lengths.tolist()
    assert np.array_equal(np.concatenate([one.observations for one in read]), made.observations)
    for name, expected in (("actions", made.actions), ("rewards", made.rewards), ("terminations", made.terminated)):
        column = np.concatenate([getattr(one, name) for one in read])
        assert column.dtype == expected.dtype
        assert np.array_equal(column, expected)
    assert [one.truncations.tolist() for one in read] == [[False] * 3, [True], [False] * 5]
    own = read_dataset(folder).episodes
    assert all(np.array_equal(getattr(own, name), getattr(made, name)) for name in ("observations", "actions"))
    with pytest.raises(DatasetError, match="exists: name another folder"):
        write_dataset(folder, made, spaces=space, env_spec=None, algorithm="sac", text="made")


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        (
            spaces.Discrete(6),
            spaces.Discrete(4),
            r"Discrete\(6\), and the environment of Discrete\(4\): take a dataset of",
        ),
        (
            spaces.Discrete(4, start=1),
            spaces.Discrete(4),
            r"Discrete\(4, start=1\), and the environment of Discrete\(4\)",
        ),
        (spaces.MultiDiscrete([4, 2]), spaces.MultiDiscrete([2, 4]), r"\(\[4, 2\]\), and .* MultiDiscrete\(\[2, 4\]\)"),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-2, 2, (2,)), r"Box\(-1, 1, \(2,\)\), and .* Box\(-2, 2, \(2,\)\)"),
        (spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-2, 2, (2,)), None),
        (spaces.Box(-0.4, 0.4, (2,)), spaces.Box(-0.4, 0.4, (2,), np.float64), None),
    ],
)
def test_a_dataset_of_other_actions_is_refused(there: Space, here: Space, said: str | None, tmp_path: Path) -> None:
    """Spaces of one shape passed for each other."""
    pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
    pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")
    seen = spaces.Box(-1, 1, (3,))
    acted = np.array([there.sample() for _ in range(4)])
    made = Episodes(np.zeros((5, 3), np.float32), acted, np.zeros(4, np.float32), np.zeros(4, np.bool_), np.array([4]))
    write_dataset(tmp_path / "a-v0", made, spaces=(seen, there), env_spec=None, algorithm="by hand", text="")
    specs = ObservationSpec.of(seen), ActionSpec.of(here)
    if said is None:
        assert fitting_episodes(tmp_path / "a-v0", *specs).steps == 4
        return
    with pytest.raises(DatasetError, match=said):
        fitting_episodes(tmp_path / "a-v0", *specs)


@pytest.mark.parametrize("there", [spaces.Discrete(6), spaces.Discrete(4, start=1)])
def test_a_dataset_of_other_discrete_observations_is_refused(there: Space, tmp_path: Path) -> None:
    pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
    pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")
    acts, ends = spaces.Discrete(2), np.array([False, False, True])
    made = Episodes(np.array([1, 2, 3, 1]), np.zeros(3, np.int64), np.ones(3, np.float32), ends, np.array([3]))
    write_dataset(tmp_path / "a-v0", made, spaces=(there, acts), env_spec=None, algorithm="by hand", text="")
    assert fitting_episodes(tmp_path / "a-v0", ObservationSpec.of(there), ActionSpec.of(acts)).steps == 3
    said = f"has observations of {there}, and the environment of Discrete(4): is it"
    with pytest.raises(DatasetError, match=re.escape(said)):
        fitting_episodes(tmp_path / "a-v0", ObservationSpec.of(spaces.Discrete(4)), ActionSpec.of(acts))


@pytest.mark.parametrize(("env", "reward"), [({}, [1.0, -1.0, 0.5]), ({"reward_clipping": False}, [5.0, -7.0, 0.5])])
def test_rewards_of_atari_are_clipped_as_collectors_clip_them(
    env: dict[str, JsonValue], reward: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ale_py", reason="needs pip install 'remuda[atari]'")
    seen, ends = np.zeros((4, 4, 84, 84), np.uint8), np.array([False, False, True])
    raw = Episodes(seen, np.zeros(3, np.int64), np.array([5.0, -7.0, 0.5], np.float32), ends, np.array([3]))
    monkeypatch.setattr(dataset, "fitting_episodes", lambda source, observation, action, sampled: raw)
    config = ExperimentConfig(name="pong", env=EnvConfig(id="ALE/Pong-v5", kwargs=env), policy=DqnConfig(n_step=1))
    rows = dataset.dataset_rows(config, "pong-v0", ObservationSpec((4, 84, 84), "uint8"), ActionSpec(6))
    assert rows["reward"].tolist() == reward


@settings(deadline=None)
@given(n_step=st.integers(1, 4), seed=st.integers(0, 1000), size=st.integers(1, 60))
def test_the_rows_of_a_dataset_are_those_that_were_collected(n_step: int, seed: int, size: int) -> None:
    collected = rollout_of([ScriptedEnv(0), ScriptedEnv(1)], n_step=n_step, seed=seed).collect(size, {})
    found, _ = counted_episodes([(collected.meta(ChunkId(WORKER, 0, 0)), collected.columns)])
    if found is None:
        return
    made = rows_of(found, n_step=n_step, discount=DISCOUNT)
    known = {_row(collected.columns, index): 0 for index in range(collected.rows)}
    assert len(made["reward"]) == found.steps
    for index in range(found.steps):
        row = _row(made, index)
        (near,) = [one for one in known if one[:3] == row[:3]]
        assert row[3:] == pytest.approx(near[3:], rel=1e-6, abs=1e-6)


def _row(columns: Columns, index: int) -> tuple[str, str, int, float, float]:
    parts = (columns[name][index].tolist() for name in ("obs", "next_obs"))
    numbers = (float(columns[name][index]) for name in ("reward", "discount"))
    return (*map(str, parts), int(columns["action"][index]), *numbers)  # type: ignore[return-value]
