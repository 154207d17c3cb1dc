"""Finds the newest policy of a run that may still be running."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.loading import TrainedPolicy, load_checkpoint_policy
from remuda.policy.files.playable import Playable, of_run, trained_playable
from remuda.policy.files.policy_file import PolicyFileError, load
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord, PolicyRef


class NewestPolicy:
    """Looks for newer policies: in the policy file that a parallel run's learner rewrites, and among checkpoints."""

    def __init__(self, run_dir: Path, *, trust_code: bool = False, search: bool = True) -> None:
        """`trust_code` and `search`: see load_checkpoint_policy."""
        self._trust_code, self._search = trust_code, search
        self._run = RunFolder(run_dir)
        self._train_iter = -1
        """The train_iter of the newest policy that was found."""
        self._published: PolicyRef | None = None
        self._trained: TrainedPolicy | None = None

    def newer(self) -> Playable | None:
        """The newest policy, if it is newer than the one given before. Raises CheckpointIndexError, CheckpointError,
        ConfigError."""
        last = CheckpointIndex(self._run.ckpt).last
        if last is None:
            return None  # the first thing a run saves; before it nobody knows what a policy file is of
        playable = self._from_policy_file(last) or self._from_checkpoint(last)
        return None if playable is None else of_run(playable, self._run.root)

    def _from_policy_file(self, last: CheckpointRecord) -> Playable | None:
        path = self._policy_file()
        if path is None:
            return None
        try:
            published = load(path, newer_than=self._published)
        except PolicyFileError:
            return None  # it is gone; the next search may find another
        if published is None or published.ref.train_iter <= max(self._train_iter, last.train_iter):
            return None
        trained = self._trained or self._loaded(last)
        if trained is None:
            return None
        trained.policy.load_state(published.state)
        self._trained, self._published, self._train_iter = trained, published.ref, published.ref.train_iter
        return trained_playable(trained, path, train_iter=self._train_iter, env_step=None)

    def _from_checkpoint(self, last: CheckpointRecord) -> Playable | None:
        if last.train_iter <= self._train_iter:
            return None
        trained = self._loaded(last)
        if trained is None:
            return None
        self._trained, self._train_iter = trained, last.train_iter
        path = self._run.ckpt / last.file
        return trained_playable(trained, path, train_iter=last.train_iter, env_step=last.env_step)

    def _loaded(self, record: CheckpointRecord) -> TrainedPolicy | None:
        path = self._run.ckpt / record.file
        try:
            return load_checkpoint_policy(path, trust_code=self._trust_code, search=self._search)
        except CheckpointError:
            if path.exists():
                raise
            return None  # pruned at this moment: there is a newer one

    def _policy_file(self) -> Path | None:
        """The policy file; if an experiment had several coordinators, that of the last."""
        found: list[tuple[int, Path]] = []
        for path in self._run.policy.glob("policy_*"):
            if path.suffix != ".lock":
                with suppress(FileNotFoundError):  # it was removed after it was listed
                    found.append((path.stat().st_mtime_ns, path))
        return max(found)[1] if found else None
