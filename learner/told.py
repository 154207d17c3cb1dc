"""Callbacks of a learner's lease: the coordinator says what happened, and is told what they decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.learner.callbacks import CallbackHost, make_callbacks
from remuda.wire.messages import Assign, CallbacksDecided, CallCallbacks


class ToldCallbacks:
    """Answers each event once, and says the newest answer again where it is asked again."""

    def __init__(
        self, assign: Assign, config: ExperimentConfig, *, ckpt: Path, send: Callable[[CallbacksDecided], None]
    ) -> None:
        """Raises UserCodeError."""
        self._lease, self._send = assign.lease, send
        self._newest: CallbacksDecided | None = None
        self.host = CallbackHost(
            make_callbacks(config),
            config,
            ckpt=ckpt,
            policy=assign.policy,
            states=assign.callbacks,
            changes=assign.changes,
        )

    def call(self, message: CallCallbacks) -> None:
        """Tell the callbacks of an event."""
        if self._newest is None or message.number > self._newest.number:
            self._newest = CallbacksDecided(
                self._lease, message.number, self.host.decide(message.event, message.env_step)
            )
        if message.number == self._newest.number:
            self._send(self._newest)
