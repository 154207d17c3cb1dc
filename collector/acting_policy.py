"""A policy that a collector acts by: which version it has, and which there is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from remuda.collector.rollout import Behavior
from remuda.policy.base import Policy
from remuda.policy.files.policy_file import LoadedPolicy, PolicyFileError
from remuda.wire.messages import Acting, PolicyRef
from remuda.worker.stores.ports import PolicyStore


class ActingPolicy:
    """Loads the newest version when it is asked to act, each once."""

    def __init__(
        self, policy: Policy, store: PolicyStore, exploration: dict[str, float], warn: Callable[[str], None]
    ) -> None:
        """`warn` gets a text for the log."""
        self._policy, self._store, self._exploration, self._warn = policy, store, exploration, warn
        self._newest = PolicyRef()
        self._acting: PolicyRef | None = None
        self._damaged = PolicyRef()
        """The newest version when its file was last found damaged."""

    @property
    def acting(self) -> PolicyRef | None:
        """The version that acts; None before the first."""
        return self._acting

    def hear(self, news: Acting) -> None:
        """There is this version, and it acts so."""
        self._newest = max(self._newest, news.policy)
        if news.exploration:
            self._exploration = news.exploration

    def behavior(self, loading: AbstractContextManager[None]) -> Behavior:
        """How the policy acts in the next chunk. Loads a newer version within `loading`; if its file is damaged, keeps
        the version before. Raises PolicyFileError, and NotNowError."""
        if self._acting is None or self._newest > max(self._acting, self._damaged):
            with loading:
                loaded = self._load()
            if loaded is not None:
                self._policy.load_state(loaded.state)
                self._acting = loaded.ref
        assert self._acting is not None, "credit comes only after the first policy was published"
        return Behavior(self._exploration, self._acting)

    def _load(self) -> LoadedPolicy | None:
        try:
            return self._store.load(newer_than=self._acting)
        except PolicyFileError as error:
            if self._acting is None:
                raise
            self._damaged = self._newest
            self._warn(f"keeps the policy of version {self._acting.version}, until there is a sound one: {error}")
            return None
