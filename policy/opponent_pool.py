"""The older policies of a run that play against newer ones, in self-play."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Policy

if TYPE_CHECKING:
    from remuda.wire.messages import CheckpointFile


@dataclass(frozen=True, eq=False)
class Opponent:
    """One checkpoint of a policy."""

    policy: Policy
    file: str = ""
    train_iter: int = -1
    """Its update; -1 if unknown."""
    sha256: str = ""
    """Of its file."""


class OpponentPool:
    """The newest checkpoints of each policy of a run: `self_play.keep`, and the present one. Policies are numbered by
    the order of their names."""

    def __init__(self, configs: Sequence[ExperimentConfig]) -> None:
        """`configs` are the settings of each policy."""
        self._configs = tuple(configs)
        self._keep = configs[0].self_play.keep
        self._opponents = [deque[Opponent](maxlen=self._keep + 1) for _ in configs]

    def add(self, policy_index: int, opponent: Opponent) -> None:
        """Add a checkpoint, which is newer than all before."""
        self._opponents[policy_index].append(opponent)

    def load(self, policy_index: int, path: Path, *, file: str, train_iter: int = -1, sha256: str = "") -> None:
        """Add a checkpoint from its file. Raises CheckpointError."""
        from remuda.policy.files.playable import load_checkpoint_policy

        policy = load_checkpoint_policy(path, config=self._configs[policy_index]).policy
        self.add(policy_index, Opponent(policy, file, train_iter, sha256))

    def load_only(
        self, policy_index: int, files: Sequence[CheckpointFile], fetch: Callable[[str, str], Path]
    ) -> list[Opponent]:
        """Return these checkpoints, in their order, and forget all others. Each is loaded once; `fetch` returns the
        path of a file by its name and checksum. Raises what `fetch` raises, and CheckpointError."""
        known = {one.sha256: one for one in self._opponents[policy_index]}
        for one in files:
            if one.sha256 not in known:
                self.load(policy_index, fetch(one.file, one.sha256), file=one.file, sha256=one.sha256)
                known[one.sha256] = self._opponents[policy_index][-1]
        kept = [known[one.sha256] for one in files]
        self._opponents[policy_index] = deque(kept, maxlen=max(self._keep + 1, len(kept)))
        return kept

    def newest(self, policy_index: int) -> Sequence[Opponent]:
        """The newest checkpoints of a policy, `self_play.keep` at most, the oldest first."""
        return [*self._opponents[policy_index]][-self._keep :]

    def all_but(self, policy_index: int, train_iter: int) -> list[Opponent]:
        """Return all checkpoints of a policy but the checkpoint of this update."""
        return [one for one in self._opponents[policy_index] if one.train_iter != train_iter]
