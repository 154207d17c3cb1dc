"""Loads the newest published policy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from remuda.collector.rollout import Behavior
from remuda.policy.base import Policy
from remuda.policy.files.policy_file import LoadedPolicy, PolicyFileError
from remuda.wire.messages import Acting, PolicyRef
from remuda.worker.stores.ports import PolicyStore


class ActingPolicy:
    """Loads each new version once, right before acting."""

    def __init__(
        self, policy: Policy, store: PolicyStore, exploration: dict[str, float], warn: Callable[[str], None]
    ) -> None:
        """`warn` gets a text for the log."""
        self._policy, self._store, self._exploration, self._warn = policy, store, exploration, warn
        self._newest = PolicyRef()
        self._acting: PolicyRef | None = None
        self._damaged = PolicyRef()
        """Newest version at the time of the last damaged file."""

    @property
    def acting(self) -> PolicyRef | None:
        """Version in use; None before the first."""
        return self._acting

    def hear(self, news: Acting) -> None:
        """Note the newest version and its exploration settings."""
        self._newest = max(self._newest, news.policy)
        if news.exploration:
            self._exploration = news.exploration

    def behavior(self, loading: AbstractContextManager[None]) -> Behavior:
        """Return the behavior for the next chunk. Loads a newer version within `loading`; a damaged file keeps the
        version before. Raises PolicyFileError and NotNowError."""
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
