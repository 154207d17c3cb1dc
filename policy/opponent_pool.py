"""The checkpoints of a run that play against its policies, in self-play."""

from __future__ import annotations

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


class OpponentPool:
    """Loaded checkpoints of each policy of a run. Policies are numbered by the order of their names."""

    def __init__(self, configs: Sequence[ExperimentConfig]) -> None:
        """`configs` are the settings of each policy."""
        self._configs = tuple(configs)
        self._known = [dict[str, Opponent]() for _ in configs]
        """Of each policy, by checksum of the file."""

    def load(self, policy_index: int, one: CheckpointFile, fetch: Callable[[str, str], Path]) -> Opponent:
        """Return a checkpoint, loaded once; `fetch` returns the path of a file by its name and checksum. Raises what
        `fetch` raises, and CheckpointError."""
        from remuda.policy.files.playable import load_checkpoint_policy  # with torch, which collectors begin without

        known = self._known[policy_index]
        if one.sha256 not in known:
            path = fetch(one.file, one.sha256)
            policy = load_checkpoint_policy(path, config=self._configs[policy_index]).policy
            known[one.sha256] = Opponent(policy, one.file)
        return known[one.sha256]

    def load_only(
        self, policy_index: int, files: Sequence[CheckpointFile], fetch: Callable[[str, str], Path]
    ) -> list[Opponent]:
        """Return these checkpoints, in their order, and forget all others. Raises like `load`."""
        found = [self.load(policy_index, one, fetch) for one in files]
        self._known[policy_index] = {one.sha256: each for one, each in zip(files, found, strict=True)}
        return found
