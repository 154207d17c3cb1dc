"""Self-play in parallel mode: the older checkpoints that a collector was told of, loaded and brought into the game."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from remuda.collector.past import PastPlayers
from remuda.config.schema import ExperimentConfig
from remuda.wire.messages import CheckpointFile, Opponents
from remuda.worker.stores.ports import CheckpointGoneError, NotNowError, RunStores


class OlderPlayers:
    """Brings each checkpoint into the game once. Collecting waits for none: one that is not on this machine yet is
    tried again before the next chunk."""

    def __init__(
        self,
        configs: Mapping[str, ExperimentConfig],
        stores: RunStores,
        past: PastPlayers | None,
        *,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """`configs` are the settings of each policy, by name; `past` is None without self-play. `say` and `warn` get
        texts for the log."""
        self._names, self._configs = tuple(configs), tuple(configs.values())
        self._stores = [own.checkpoints for own in stores.of_policies]
        self._past, self._say, self._warn = past, say, warn
        self._heard: dict[int, frozenset[str]] = {}
        """By place, the files that were in the newest message."""
        self._waiting = deque[tuple[int, CheckpointFile]]()

    def hear(self, news: Opponents) -> None:
        """These checkpoints play; each message has some of the one before."""
        known = self._heard.get(news.place, frozenset())
        self._waiting.extend((news.place, one) for one in news.checkpoints if one.file not in known)
        self._heard[news.place] = frozenset(one.file for one in news.checkpoints)

    def load(self) -> None:
        """Bring into the game what has come."""
        if self._past is not None and self._waiting:
            self._load_into(self._past)

    def _load_into(self, past: PastPlayers) -> None:
        from remuda.policy.files.checkpoint_file import CheckpointError  # with torch, which collectors begin without
        from remuda.policy.files.playable import load_checkpoint_policy

        while self._waiting:
            place, one = self._waiting[0]
            try:
                path = self._stores[place].fetch(one.file, one.sha256)
                policy = load_checkpoint_policy(path, config=self._configs[place]).policy
            except NotNowError:
                return
            except (CheckpointGoneError, CheckpointError) as error:  # newer ones have taken its place meanwhile
                self._warn(f"{self._called(place, one.file)} does not play: {error}")
            else:
                past.remember(place, policy, one.file)
                self._say(f"{self._called(place, one.file)} plays against newer policies from now on")
            del self._waiting[0]

    def tell(self, place: int) -> None:
        """Log which older checkpoints of a policy were drawn since this was last called, if any was."""
        if self._past is None:
            return
        drawn = self._past.take_drawn(place)
        if drawn:
            each = ", ".join(f"{count} against {self._called(place, name)}" for name, count in drawn.items())
            self._say(f"episodes begun: {each}")

    def _called(self, place: int, file: str) -> str:
        name = file.removesuffix(".pth.tar")
        return f"{self._names[place]}/{name}" if self._names[place] else name
