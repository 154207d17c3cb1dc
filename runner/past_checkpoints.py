"""Older checkpoints of a policy that play against newer ones, in self-play."""

from __future__ import annotations

from collections.abc import Callable

from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.wire.messages import CheckpointRecord


class PastCheckpoints:
    """Keeps the newest `self_play.keep` checkpoints in the game, and the present one: those that ckpt/ has, so that a
    resumed run plays against the same ones."""

    def __init__(self, config: ExperimentConfig, algorithm: Algorithm, remember: Callable[[int, Policy], None]) -> None:
        """`remember` is called with each and its update, the oldest first."""
        self._config, self._algorithm, self._remember = config, algorithm, remember
        self._newest = -1
        """Its update."""

    def saved(self, record: CheckpointRecord) -> None:
        """A checkpoint of the present weights was saved."""
        if record.train_iter == self._newest:
            return
        self._newest = record.train_iter
        policy = make_policy(self._config, self._algorithm.observation, self._algorithm.action)
        policy.load_state(self._algorithm.published_state())
        self._remember(record.train_iter, policy)

    def load(self, checkpoints: CheckpointIndex) -> None:
        """A run is resumed with these checkpoints. Raises CheckpointError."""
        for record in checkpoints.records[-self._config.self_play.keep - 1 :]:
            self._newest = record.train_iter
            trained = load_checkpoint_policy(checkpoints.folder / record.file, config=self._config)
            self._remember(record.train_iter, trained.policy)
