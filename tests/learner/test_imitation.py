"""A new policy acts as demonstrations show, and demonstrations are in every batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from remuda.buffer.episodes import DatasetError, Episodes, write_dataset
from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.algorithms.registry import PolicyConfig
from remuda.config.algorithms.twin_critics import IqlConfig, SacConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.spaces import Space
from remuda.learner.demonstrations import imitate, with_demonstrations
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.spaces import ActionSpec, ObservationSpec

pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")

SEEN: Space = spaces.Box(-1.0, 1.0, (3,), np.float32)
COUNTED: Space = spaces.Discrete(3, start=1)
PUSHED: Space = spaces.Box(-2.0, 4.0, (2,), np.float32)


def shown(folder: Path, action: Space) -> str:
    """A dataset in which the first number of an observation determines the action."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1.0, 1.0, (402, 3)).astype(np.float32)
    first = np.delete(observations[:, 0], [200, 401])
    acted = np.where(first < -0.3, 1, np.where(first < 0.3, 2, 3)) if action is COUNTED else None
    if acted is None:
        acted = np.stack((1.0 + 2.5 * first, 1.0 - 2.0 * first), axis=1).astype(np.float32)
    episodes = Episodes(observations, acted, np.ones(400, np.float32), np.zeros(400, np.bool_), np.array([200, 200]))
    write_dataset(folder, episodes, spaces=(SEEN, action), env_spec=None, algorithm="by hand", text="")
    return str(folder)


def experiment(policy: PolicyConfig, *, imitated: str | None = None, mixed: str | None = None) -> ExperimentConfig:
    learner = LearnerConfig(initialize_from_demonstrations=imitated, demonstration_iters=400)
    buffer = BufferConfig(demonstrations=mixed, demonstration_share=0.2)
    return ExperimentConfig(name="i", env=EnvConfig(id="unused-v0"), policy=policy, learner=learner, buffer=buffer)


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (DqnConfig(hidden=(32,)), COUNTED),
        (PpoConfig(hidden=(32,)), COUNTED),
        (PpoConfig(hidden=(32,)), PUSHED),
        (SacConfig(hidden=(32,)), PUSHED),
        (IqlConfig(hidden=(32,)), PUSHED),
    ],
    ids=["dqn", "ppo", "ppo, numbers", "sac", "iql"],
)
def test_a_policy_that_imitates_acts_as_shown(policy: PolicyConfig, action: Space, tmp_path: Path) -> None:
    config = experiment(policy, imitated=shown(tmp_path / "shown", action))
    specs = ObservationSpec.of(SEEN), ActionSpec.of(action)
    algorithm = make_algorithm(config, *specs, seed=0)
    assert imitate(config, algorithm) is not None
    acting = make_policy(config, *specs)
    acting.load_state(algorithm.published_state())
    seen = np.random.default_rng(1).uniform(-1.0, 1.0, (200, 3)).astype(np.float32)
    acted = acting.act(seen, {}, np.random.default_rng(0), deterministic=True)
    if action is COUNTED:
        assert np.mean(acted == np.where(seen[:, 0] < -0.3, 1, np.where(seen[:, 0] < 0.3, 2, 3))) > 0.9
    else:
        expected = np.stack((1.0 + 2.5 * seen[:, 0], 1.0 - 2.0 * seen[:, 0]), axis=1)
        assert np.abs(acted - expected).mean() < 0.2


def test_an_averaged_actor_begins_as_the_actor_that_imitates(tmp_path: Path) -> None:
    config = experiment(SacConfig(hidden=(8,), averaged_share=0.1), imitated=shown(tmp_path / "shown", PUSHED))
    algorithm = make_algorithm(config, ObservationSpec.of(SEEN), ActionSpec.of(PUSHED), seed=0)
    before = algorithm.acting_state()
    assert imitate(config, algorithm) is not None
    after = algorithm.acting_state()
    actor = [name for name in after if name.startswith("actor.")]
    assert not any(np.array_equal(after[name], before[name]) for name in actor)
    for name in actor:
        np.testing.assert_array_equal(after[f"averaged_{name}"], after[name])


def test_weights_of_length_1_keep_it(tmp_path: Path) -> None:
    policy = SacConfig(hidden=(8,), normalization="hyperspherical")
    config = experiment(policy, imitated=shown(tmp_path / "shown", PUSHED))
    algorithm = make_algorithm(config, ObservationSpec.of(SEEN), ActionSpec.of(PUSHED), seed=0)
    before = algorithm.acting_state()
    assert imitate(config, algorithm) is not None
    after = algorithm.acting_state()
    moved = [name for name in after if name.startswith("actor") and not np.array_equal(after[name], before[name])]
    matrices = [after[name] for name in moved if after[name].ndim == 2]
    assert len(matrices) == 5
    for matrix in matrices:
        np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1.0, rtol=1e-5)


def test_what_cannot_imitate_says_so(tmp_path: Path) -> None:
    specs = ObservationSpec.of(SEEN), ActionSpec.of(PUSHED)
    config = experiment(CrossQConfig(hidden=(8,)), imitated=shown(tmp_path / "shown", PUSHED))
    with pytest.raises(DatasetError, match=r"initialize_from_demonstrations: this policy .* normalises"):
        imitate(config, make_algorithm(config, *specs, seed=0))
    other = ObservationSpec.of(spaces.Box(-1.0, 1.0, (4,), np.float32)), specs[1]
    config = experiment(SacConfig(hidden=(8,)), imitated=str(tmp_path / "shown"))
    with pytest.raises(DatasetError, match=r"has observations of float32\[3\], and the environment of float32\[4\]"):
        imitate(config, make_algorithm(config, *other, seed=0))


def test_a_share_of_every_batch_is_demonstrations_whose_priorities_nobody_gets(tmp_path: Path) -> None:
    config = experiment(DqnConfig(hidden=(8,), n_step=1), mixed=shown(tmp_path / "shown", COUNTED))
    algorithm = make_algorithm(config, ObservationSpec.of(SEEN), ActionSpec.of(COUNTED), seed=0)
    given: list[Arrays] = []

    def learn(batch: Arrays) -> LearnResult:
        given.append(batch)
        return LearnResult({}, torch.arange(float(len(batch["reward"]))))

    drawn: dict[str, np.ndarray] = {
        "obs": np.full((32, 3), 7.0, np.float32),
        "next_obs": np.full((32, 3), 7.0, np.float32),
        "action": np.ones(32, np.int64),
        "reward": np.zeros(32, np.float32),
        "discount": np.zeros(32, np.float32),
        "weights": np.full(32, 0.5, np.float32),
        "legal": np.zeros((32, 3), np.bool_),
    }
    update = with_demonstrations(config, algorithm, learn, epoch=0)
    assert update is not None
    result = update(drawn)
    assert result.priorities is not None
    assert result.priorities.tolist() == list(range(32))
    (batch,) = given
    assert {name: column.dtype for name, column in batch.items()} == {name: own.dtype for name, own in drawn.items()}
    assert all(np.array_equal(batch[name][:32], drawn[name]) for name in drawn)
    added = {name: column[32:] for name, column in batch.items()}
    assert len(added["reward"]) == 8  # a fifth of 40
    first = added["obs"][:, 0]
    assert added["action"].tolist() == np.where(first < -0.3, 1, np.where(first < 0.3, 2, 3)).tolist()
    assert (added["weights"] == 1.0).all()
    assert added["legal"].all()
