"""Calls the user's callbacks, and collects their decisions."""

from __future__ import annotations

import inspect
import json
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from pydantic import JsonValue, ValidationError

from remuda.config.current import Changes, changeable, config_at
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section, as_json
from remuda.config.user_code import UserCodeError, user_object
from remuda.config.workers import CallbackConfig
from remuda.learner.callback import Callback
from remuda.learner.settings import of_own_class
from remuda.logbook.statistics import spread_evenly
from remuda.wire.messages import (
    MOST_CHANGES,
    MOST_HISTOGRAMS,
    MOST_NUMBERS,
    MOST_STATE_BYTES,
    Assign,
    CallbackAnswer,
    CallbackEvent,
    CallbacksDecided,
    CallCallbacks,
    Checkpointed,
    Ended,
    Episodes,
    Evaluated,
    Histogram,
    SettingValue,
    Started,
    Verdict,
    shortened,
)

CallbackLike = Callback | type[Callback]
"""A callback, or its class."""
LONGEST_NAME = 100
BUCKETS = 64
"""Of a histogram."""
LONGEST_TASK = 100_000
"""Characters of a task's arguments, as JSON."""
_METHODS: dict[type[CallbackEvent], str] = {
    Started: "on_start",
    Evaluated: "on_evaluation",
    Checkpointed: "on_checkpoint",
    Episodes: "on_episode",
    Ended: "on_end",
}


@dataclass
class _Requests:
    """Requests of a callback at one event; see CallbackRun."""

    config: ExperimentConfig
    """With a policy of the algorithm's own class."""
    ckpt: Path
    policy: str
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    histograms: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    reason: str | None = None
    changes: list[tuple[str, SettingValue]] = field(default_factory=list[tuple[str, SettingValue]])
    refused: list[str] = field(default_factory=list[str])
    task_json: str | None = None

    def log(self, name: str, value: ArrayLike) -> None:
        """See CallbackRun. Raises ValueError and TypeError."""
        _check(name)
        is_number = math.prod(np.shape(value)) == 1
        logged, most = (self.numbers, MOST_NUMBERS) if is_number else (self.histograms, MOST_HISTOGRAMS)
        if name not in logged and len(logged) == most:
            raise ValueError(f"more than {most} {'numbers' if is_number else 'histograms'} about one event")
        if is_number:
            self.numbers[name] = float(cast("float", value) if np.ndim(value) == 0 else np.asarray(value).item())
        elif (histogram := spread_evenly(np.asarray(value), BUCKETS)) is not None:
            self.histograms[name] = histogram

    def stop(self, reason: str) -> None:
        if self.reason is None:
            self.reason = str(reason)

    def set_task(self, kwargs: Mapping[str, object]) -> None:
        """See CallbackRun; the last call counts. Raises ValueError and TypeError."""
        self.task_json = json.dumps(as_json(dict(kwargs)), allow_nan=False)
        if len(self.task_json) > LONGEST_TASK:
            raise ValueError(f"the arguments of a task have {len(self.task_json)} characters, more than {LONGEST_TASK}")

    def change(self, setting: str, value: float) -> None:
        """See CallbackRun. Raises ValueError and TypeError."""
        _check(setting)
        if len(self.changes) + len(self.refused) == MOST_CHANGES:
            raise ValueError(f"more than {MOST_CHANGES} changes at one event")
        try:
            self.changes.append((setting, _validated(self.config, setting, value)))
        except ValueError as error:
            why = f"{setting} stays as it is, and cannot become {value}: {_words(error)}"
            self.refused.append(shortened(why))


def _validated(config: ExperimentConfig, setting: str, value: float) -> SettingValue:
    """Validate a changed value by its section. Raises ValueError if the setting cannot take it during a run."""
    known = changeable(config)
    if setting not in known:
        raise ValueError(f"it may not change during a run; these may: {', '.join(known)}")
    section, _, name = setting.partition(".")
    inside = cast("Section", getattr(config, section))
    number = value if type(value) is int else float(value)
    checked = type(inside).model_validate({**inside.model_dump(), name: number})
    return cast("SettingValue", getattr(checked, name))


def _words(error: ValueError) -> str:
    return error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)


def _check(name: str) -> None:
    if not name or len(name) > LONGEST_NAME:
        raise ValueError(f"a name should have 1 to {LONGEST_NAME} characters, not {len(name)}")


class CallbackHost:
    """The callbacks of a run, or of one of its policies."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        config: ExperimentConfig,
        *,
        ckpt: Path,
        policy: str = "",
        states: Mapping[str, bytes] | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`states` and `changes` are the journal's. Raises UserCodeError if a callback does not accept its state."""
        self._config, self._ckpt, self._policy = of_own_class(config) if callbacks else config, ckpt, policy
        self._changes: Changes = changes or {}
        self._callbacks = _named(callbacks)
        self._states: dict[str, bytes | None] = {name: (states or {}).get(name) for name in self._callbacks}
        for name, state in self._states.items():
            if state is not None:
                self._restore_state(name, self._callbacks[name], state)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the callbacks in logs."""
        return tuple(self._callbacks)

    @property
    def log_line(self) -> str:
        """A line for the log."""
        return f"callbacks: {', '.join(self._callbacks)}"

    def config(self, env_step: int) -> ExperimentConfig:
        """Settings after `env_step` environment steps."""
        return config_at(self._config, env_step, self._changes)

    def change(self, changes: Changes) -> None:
        """Use these changed settings from now on."""
        self._changes = changes

    def decide(self, event: CallbackEvent, env_step: int) -> CallbackAnswer:
        """Deliver an event to all callbacks, after `env_step` environment steps."""
        config = self.config(env_step)
        verdicts = [self._call(name, one, event, config) for name, one in self._callbacks.items()]
        has_news = [verdict for verdict in verdicts if verdict != Verdict(verdict.callback)]
        wants = any(type(one).on_episode is not Callback.on_episode for one in self._callbacks.values())
        return CallbackAnswer(has_news, wants_episodes=wants)

    def _call(self, name: str, callback: Callback, event: CallbackEvent, config: ExperimentConfig) -> Verdict:
        requests, method = _Requests(config, self._ckpt, self._policy), _METHODS[type(event)]
        try:
            with NoExit():
                call = cast("Callable[[CallbackEvent, _Requests], None]", getattr(callback, method))
                call(event, requests)
                method = "state"
                state = self._new_state(name, callback)
        except Exception as error:  # whatever the user's code raises
            failure = f"{method} of callback {name} failed: {type(error).__name__}: {error}"
            return Verdict(
                name,
                requests.numbers,
                failure=shortened(failure),
                traceback=traceback.format_exc()[-100_000:],
                histograms=requests.histograms,
            )
        return Verdict(
            name,
            requests.numbers,
            None if requests.reason is None else shortened(requests.reason),
            requests.changes,
            requests.refused,
            state=state,
            task_json=requests.task_json,
            histograms=requests.histograms,
        )

    def _new_state(self, name: str, callback: Callback) -> bytes | None:
        """Return the state if it has changed. Raises ValueError, and the errors of the callback."""
        state = callback.state()
        if state is None:
            return None
        packed = msgspec.msgpack.encode(dict(state))
        if len(packed) > MOST_STATE_BYTES:
            raise ValueError(f"its state has {len(packed)} bytes, and the most is {MOST_STATE_BYTES}")
        if packed == self._states[name]:
            return None
        self._states[name] = packed
        return packed

    def _restore_state(self, name: str, callback: Callback, state: bytes) -> None:
        try:
            with NoExit():
                callback.load_state(msgspec.msgpack.decode(state, type=dict[str, object]))
        except Exception as error:  # whatever the user's code raises
            text = f"callbacks: load_state of {name} failed: {type(error).__name__}: {error}"
            raise UserCodeError("callbacks", text) from error


class _Made(Protocol):
    def __call__(self, **kwargs: JsonValue) -> object: ...


def make_callbacks(config: ExperimentConfig, given: Sequence[CallbackLike] = (), *, policy: str = "") -> list[Callback]:
    """Make the callbacks of the config, followed by a program's, for a policy. Raises UserCodeError."""
    if policy and not all(inspect.isclass(one) for one in given):
        text = "callbacks: each of several policies has callbacks of its own: give classes, and no objects"
        raise UserCodeError("callbacks", text)
    named = [_named_by(one, config.source_dir) for one in config.callbacks]
    return [*named, *(_given(one) for one in given)]


def check_class(one: CallbackConfig, source_dir: str | None) -> None:
    """Check the class of a callback, without an object. Does not call a function that returns a callback. Raises
    UserCodeError."""
    kind = _imported(one, source_dir)
    if inspect.isclass(kind):
        if not issubclass(kind, Callback):
            raise UserCodeError("callbacks", f"callbacks: {one.make} should derive from remuda.Callback")
        _check_methods(one.make, kind)


def _given(one: CallbackLike) -> Callback:
    return _made(one.__name__, cast("_Made", one)) if inspect.isclass(one) else _checked(repr(one), one)


def _named_by(one: CallbackConfig, source_dir: str | None) -> Callback:
    return _made(one.make, cast("_Made", _imported(one, source_dir)), one.kwargs)


def _imported(one: CallbackConfig, source_dir: str | None) -> object:
    return user_object(one.make, setting="callbacks", source_dir=source_dir, kind="class")


def _made(name: str, kind: _Made, kwargs: Mapping[str, JsonValue] = MappingProxyType({})) -> Callback:
    try:
        with NoExit():
            made = kind(**kwargs)
    except Exception as error:  # whatever the user's code raises
        text = f"callbacks: {name} cannot be made: {type(error).__name__}: {error}"
        raise UserCodeError("callbacks", text) from error
    return _checked(name, made)


def _checked(name: str, made: object) -> Callback:
    """Return a callback of this name. Raises UserCodeError for another object, and for a method that no event calls."""
    if not isinstance(made, Callback):
        text = f"callbacks: {name} should derive from remuda.Callback, and is a {type(made).__name__}"
        raise UserCodeError("callbacks", text)
    _check_methods(name, type(made))
    return made


def _check_methods(name: str, kind: type[Callback]) -> None:
    """Raise UserCodeError for a method that no event calls."""
    events = [*_METHODS.values()]
    for method in dir(kind):
        if method.startswith("on_") and method not in events and callable(getattr(kind, method)):
            near = get_close_matches(method, events, n=1, cutoff=0.0)[0]
            text = (
                f"callbacks: {name} has a method {method}, which no event calls: did you mean {near}? The events are "
                f"{', '.join(events)}; give a method of your own a name without on_"
            )
            raise UserCodeError("callbacks", text)


def _named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Callbacks by the name of their class; the second of a class is `Class 2`."""
    named: dict[str, Callback] = {}
    for one in callbacks:
        kind = type(one).__name__[:LONGEST_NAME]
        before = sum(type(other) is type(one) or type(other).__name__ == type(one).__name__ for other in named.values())
        named[f"{kind} {before + 1}" if before else kind] = one
    return named


class LeaseCallbacks:
    """Answers each event once, and repeats the newest answer on request."""

    def __init__(self, lease: int, host: CallbackHost, send: Callable[[CallbacksDecided], None]) -> None:
        self.host = host
        self._lease, self._send = lease, send
        self._newest: CallbacksDecided | None = None

    @classmethod
    def of(
        cls, assign: Assign, config: ExperimentConfig, *, ckpt: Path, send: Callable[[CallbacksDecided], None]
    ) -> LeaseCallbacks:
        """Make the callbacks of the config, as the lease left them. Raises UserCodeError."""
        host = CallbackHost(
            make_callbacks(config),
            config,
            ckpt=ckpt,
            policy=assign.policy,
            states=assign.callbacks,
            changes=assign.changes,
        )
        return cls(assign.lease, host, send)

    def call(self, message: CallCallbacks) -> None:
        """Deliver an event to the callbacks."""
        if self._newest is None or message.number > self._newest.number:
            self._newest = CallbacksDecided(
                self._lease, message.number, self.host.decide(message.event, message.env_step)
            )
        if message.number == self._newest.number:
            self._send(self._newest)
