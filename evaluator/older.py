"""The older checkpoints that a policy is evaluated against in self-play."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Policy
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.wire.messages import CheckpointFile
from remuda.worker.stores.ports import CheckpointStore


class OlderPolicies:
    """Those of one policy. Each is loaded once, since most of them play in the next evaluation, too."""

    def __init__(self, config: ExperimentConfig, store: CheckpointStore) -> None:
        self._config, self._store = config, store
        self._loaded: dict[str, Policy] = {}
        """By the checksum of the file."""

    def load(self, files: Sequence[CheckpointFile]) -> list[Policy]:
        """In the order of `files`; all others are forgotten. Raises NotNowError, CheckpointGoneError and
        CheckpointError."""
        for one in files:
            if one.sha256 not in self._loaded:
                path = self._store.fetch(one.file, one.sha256)
                self._loaded[one.sha256] = load_checkpoint_policy(path, config=self._config).policy
        self._loaded = {one.sha256: self._loaded[one.sha256] for one in files}
        return list(self._loaded.values())
