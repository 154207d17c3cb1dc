"""Observations of a run: from its data/, or from episodes played now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import numpy as np

from remuda.buffer.chunk import REANALYSIS_SUFFIX, ChunkError, Columns, read_chunk, read_meta
from remuda.buffer.frames import FRAMES, index_name
from remuda.environments.rebuild import rebuild
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.play_policy import evaluate
from remuda.policy.base import Actor
from remuda.policy.export.deployable import Recorded
from remuda.policy.files.playable import Playable, require_fit
from remuda.storage.run_folder import RunFolder

OBSERVED = "obs"
LEGAL = "legal"


def recorded_observations(playable: Playable, run_dir: Path, number: int, *, trust_code: bool) -> Recorded:
    """Return `number` observations: the newest in the run's data/, or, if data/ has fewer, the observations of the
    policy at the end of its exploration, from the run's seed.

    Raises EnvironmentBuildError, EvaluationError, and the errors of the environment.
    """
    found = _stored(RunFolder(run_dir).data, playable, number)
    return found if found is not None else _played(playable, run_dir, number, trust_code=trust_code)


def _stored(data: Path, playable: Playable, number: int) -> Recorded | None:
    """Return the newest stored observations; None for fewer than `number`."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
    missing = number
    for columns in _chunks(data):
        part = _observed(columns, playable.observation.shape, missing)
        if part is not None:
            parts.append(part)
            missing -= len(part[0])
        if missing <= 0:
            break
    if not parts or missing > 0:
        return None
    seen, begins, legal = zip(*parts, strict=True)
    told = None if any(one is None for one in legal) else np.concatenate([one for one in legal if one is not None])
    return Recorded(np.concatenate(seen), np.concatenate(begins), told, "data/")


def _chunks(data: Path) -> Iterator[Columns]:
    """Yield the readable chunks of a folder, the newest first. A running run may delete chunks meanwhile."""
    files = [path for path in data.glob("*.safetensors") if not path.name.endswith(REANALYSIS_SUFFIX)]
    for path in sorted(files, key=lambda path: path.name.rpartition("_")[2], reverse=True):
        try:
            yield read_chunk(path, read_meta(path))
        except (ChunkError, OSError):
            continue


def _observed(
    columns: Mapping[str, np.ndarray], shape: tuple[int, ...], most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """Return consecutive observations, the begins of sequences, and the legal actions, from the first rows of a chunk;
    None without such observations."""
    index = columns.get(index_name(OBSERVED))
    seen = columns.get(OBSERVED) if index is None else columns[FRAMES][index[:most]]
    if seen is None or seen.shape[-len(shape) :] != shape[-seen.ndim :]:
        return None
    seen = seen[:most]
    steps = 1 if seen.ndim == 1 + len(shape) else seen.shape[1]
    begins = np.zeros((len(seen), steps), np.bool_)
    begins[:, 0] = True
    legal = columns.get(LEGAL)
    flat = None if legal is None else legal[: len(seen)].reshape(len(seen) * steps, -1)[:most]
    return seen.reshape(-1, *shape)[:most], begins.reshape(-1)[:most], flat


class _Recording(Actor):
    """Acts like a policy, and keeps the observations."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self.keeps_float64, self.uses_legal_actions = actor.keeps_float64, actor.uses_legal_actions
        self.state_size = actor.state_size
        self.seen: list[np.ndarray] = []
        self.begins: list[bool] = []
        self.legal: list[np.ndarray | None] = []

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """See Actor; for one environment."""
        self.seen.append(observations.copy())
        self.begins.append(state is None or not state.any())
        self.legal.append(legal)
        return self._actor.act(observations, exploration, rng, deterministic=deterministic, legal=legal, state=state)


def _played(playable: Playable, run_dir: Path, number: int, *, trust_code: bool) -> Recorded:
    env = rebuild(playable.env, source_dir=playable.source_dir, run_dir=run_dir, trust_code=trust_code)
    try:
        require_fit(playable, env)
        actor, rng = _Recording(playable.actor), generator(playable.seed, "evaluator", 0, "actions")
        for episode in count():
            evaluate(
                [env],
                actor,
                seeds=[episode_seed(playable.seed, episode)],
                rng=rng,
                exploration=playable.least_exploration,
                max_episode_steps=number - len(actor.seen),
            )
            if len(actor.seen) >= number:
                break
    finally:
        env.close()
    legal = [one for one in actor.legal if one is not None]
    told = np.concatenate(legal) if len(legal) == len(actor.legal) else None
    return Recorded(np.concatenate(actor.seen), np.array(actor.begins), told, "the environment")
