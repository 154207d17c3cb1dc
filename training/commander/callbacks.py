"""Events that wait for the user's callbacks, and the consequences of their decisions, in both modes.

Pure. Callbacks themselves run elsewhere: see remuda.learner.callbacks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.config.current import Changes
from remuda.logbook.reports import CallbackReport, HistogramReport
from remuda.training.commander.commander import Commander, Decision
from remuda.training.commander.end import BY_CALLBACK, End
from remuda.training.effects import Emit, LogLine
from remuda.training.snapshot import CallbacksSnapshot, EvaluationResult
from remuda.wire.messages import (
    MOST_CALLBACKS,
    CallbackAnswer,
    CallbackEvent,
    Checkpointed,
    CheckpointReason,
    CheckpointRecord,
    ChunkMeta,
    Counters,
    Ended,
    Episodes,
    Evaluated,
    Moment,
    SettingValue,
    Started,
    Verdict,
    shortened,
)

MOST_EPISODES = 10_000
"""Most waiting episodes, the newest."""
CHANGES_KEPT = 100
"""Most changes of a setting, the newest."""
PAUSE_S = 1.0
"""Seconds between two events about training episodes, in parallel mode: one event has many episodes."""


_NOTHING = CallbacksSnapshot()


@dataclass(frozen=True)
class CallbackOutcome:
    """Consequences of a decision."""

    effects: Sequence[Emit | LogLine] = ()
    end: End | None = None
    """Reason for the end of the run."""
    changed: bool = False
    """Settings have changed."""
    task_json: str | None = None
    """Arguments of a requested task, as JSON."""


def follow(outcome: CallbackOutcome, commander: Commander) -> Sequence[Decision]:
    """End the run, or begin another task, as callbacks have decided. A failed callback fails the run, even if the run
    is already ending."""
    if outcome.task_json is not None:
        commander.curriculum.ask(outcome.task_json)
    if outcome.end is None:
        return ()
    failed = outcome.end.state == "failed"
    decisions = commander.end(outcome.end, skip_final_evaluation=failed)
    if failed:
        commander.fail(outcome.end)
    return decisions


@dataclass
class _Waiting:
    """Training episodes without an event."""

    returns: list[float] = field(default_factory=list[float])
    lengths: list[int] = field(default_factory=list[int])
    env_steps: list[int] = field(default_factory=list[int])
    left_out: int = 0

    def add(self, meta: ChunkMeta, env_step: int) -> None:
        self.returns += meta.episode_returns
        self.lengths += meta.episode_lengths
        self.env_steps += [env_step] * len(meta.episode_returns)
        if (beyond := len(self.returns) - MOST_EPISODES) > 0:
            self.left_out += beyond
            del self.returns[:beyond], self.lengths[:beyond], self.env_steps[:beyond]


class CallbackBook:
    """Keeps the numbered events of one policy's run, in order, until they are answered.

    A callback may receive an event again after a crash; its decision counts once.
    """

    def __init__(self, experiment: str, *, active: bool) -> None:
        """`active`: the run has callbacks. `experiment` is the id of the run in effects."""
        self.active = active
        self._experiment = experiment
        self._events = deque[CallbackEvent]()
        self._waiting = _Waiting()
        self._wants_episodes = True
        """True until an answer says that no callback wants episodes."""
        self.closed = False
        """The event about the end exists: no event follows."""
        self._episodes_due_s = -math.inf
        self.answered = 0
        """Number of the newest answered event."""
        self.states: dict[str, bytes] = {}
        """State of each callback after the newest answered event."""
        self.changes: Changes = {}
        self._stopped: str | None = None

    @property
    def idle(self) -> bool:
        """True without unanswered events."""
        return not self._events and not (self._wants_episodes and self._waiting.returns)

    @property
    def stopped(self) -> End | None:
        """End decided by a callback before the run was killed; None once the last checkpoint was saved."""
        return None if self._stopped is None else End(self._stopped, self._stopped)

    @property
    def all_changes(self) -> dict[str, list[tuple[int, SettingValue]]]:
        """Changes of all settings, in the form of messages and snapshots."""
        return {setting: list(values) for setting, values in self.changes.items()}

    # --- what happens ---

    def started(self, counters: Counters, *, resumed: bool) -> None:
        """Add the event of the beginning, also of a resumed run, before all others."""
        if self.active:
            self.closed = False
            at = {"env_step": counters.env_step, "train_iter": counters.train_iter}
            self._events.appendleft(Started(**at, resumed=resumed))

    def evaluated(self, result: EvaluationResult, *, best: bool) -> None:
        """A checkpoint was evaluated."""
        record = result.record
        self._add(
            Evaluated(
                env_step=record.env_step,
                train_iter=record.train_iter,
                mean_return=result.reward_mean,
                returns=list(result.returns),
                lengths=list(result.lengths),
                is_best=best,
                checkpoint=record.file,
                task=result.task.number,
            )
        )

    def saved(self, reason: CheckpointReason, record: CheckpointRecord) -> None:
        """A checkpoint is saved."""
        if reason == "final":
            self._stopped = None
        at = {"env_step": record.env_step, "train_iter": record.train_iter}
        self._add(Checkpointed(**at, checkpoint=record.file, reason=reason))

    def chunk(self, meta: ChunkMeta, env_step: int) -> None:
        """Add the episodes of a counted chunk; `env_step` is the run's step afterwards."""
        if self.active and self._wants_episodes and not self.closed:
            self._waiting.add(meta, env_step)

    def ended(self, end: End, counters: Counters) -> None:
        """The run is over."""
        state = end.state
        assert state in ("finished", "stopped", "failed"), state
        at = {"env_step": counters.env_step, "train_iter": counters.train_iter}
        self._add(Ended(**at, reason=shortened(end.reason), state=state))
        self.closed = True

    def _add(self, event: CallbackEvent) -> None:
        if self.active and not self.closed:
            self._flush(event)
            self._events.append(event)

    def _flush(self, at: Moment) -> None:
        """Make an event of the waiting training episodes."""
        waiting, self._waiting = self._waiting, _Waiting()
        if self._wants_episodes and waiting.returns:
            self._events.append(
                Episodes(
                    env_step=max(at.env_step, waiting.env_steps[-1]),
                    train_iter=at.train_iter,
                    returns=waiting.returns,
                    lengths=waiting.lengths,
                    env_steps=waiting.env_steps,
                    left_out=waiting.left_out,
                )
            )

    # --- telling, and what is decided ---

    def due(self, counters: Counters, now_s: float = math.inf) -> tuple[int, CallbackEvent] | None:
        """Return the next event and its number; the same event until its answer."""
        if not self._events and self._waiting.returns and now_s >= self._episodes_due_s:
            self._episodes_due_s = now_s + PAUSE_S
            self._flush(Moment(env_step=counters.env_step, train_iter=counters.train_iter))
        return (self.answered + 1, self._events[0]) if self._events else None

    def has_event(self, number: int) -> bool:
        """True if an event of this number was due."""
        return number <= self.answered + bool(self._events)

    def decided(self, number: int, answer: CallbackAnswer, counters: Counters) -> CallbackOutcome:
        """Take the callbacks' decision about an event; a repeated decision changes nothing."""
        if number != self.answered + 1 or not self._events:
            return CallbackOutcome()
        event, self.answered = self._events.popleft(), number
        self._wants_episodes = answer.wants_episodes
        if not self._wants_episodes:
            self._waiting = _Waiting()
        outcomes = [self._follow(event, verdict, counters) for verdict in answer.verdicts]
        return CallbackOutcome(
            [effect for outcome in outcomes for effect in outcome.effects],
            next((outcome.end for outcome in outcomes if outcome.end is not None), None),
            any(outcome.changed for outcome in outcomes),
            next((outcome.task_json for outcome in reversed(outcomes) if outcome.task_json is not None), None),
        )

    def _follow(self, event: CallbackEvent, verdict: Verdict, counters: Counters) -> CallbackOutcome:
        effects: list[Emit | LogLine] = []
        if verdict.state is not None and (verdict.callback in self.states or len(self.states) < MOST_CALLBACKS):
            self.states[verdict.callback] = verdict.state
        if verdict.numbers:
            at = {"train_iter": event.train_iter, "env_step": event.env_step}
            report = CallbackReport(**at, callback=verdict.callback, wall_s=counters.wall_s, numbers=verdict.numbers)
            effects.append(Emit(self._experiment, report))
        if verdict.histograms:
            at = {"train_iter": event.train_iter, "env_step": event.env_step}
            histograms = HistogramReport(**at, of="callback_histogram", histograms=verdict.histograms)
            effects.append(Emit(self._experiment, histograms))
        before = self.changes
        effects += [self._say(f"callback {verdict.callback}: {why}") for why in verdict.refused]
        effects += [self._change(verdict.callback, *change, counters) for change in verdict.changes]
        end = self._end_by(verdict)
        if verdict.failure is not None:
            effects.append(self._say(f"{verdict.failure}\n{verdict.traceback}", failed=True))
        if isinstance(event, Ended):  # nothing is left to end
            return CallbackOutcome(effects)
        if verdict.failure is None and end is not None:
            self._stopped = end.reason
        return CallbackOutcome(effects, end, self.changes is not before, verdict.task_json)

    def _end_by(self, verdict: Verdict) -> End | None:
        if verdict.failure is not None:
            return End(verdict.failure, verdict.failure)
        if verdict.stop is None:
            return None
        reason = shortened(f"{BY_CALLBACK}{verdict.callback}: {verdict.stop}")
        return End(reason, reason)

    def _change(self, callback: str, setting: str, value: SettingValue, counters: Counters) -> LogLine:
        former = self.changes.get(setting, ())
        self.changes = {**self.changes, setting: [*former, (counters.env_step, value)][-CHANGES_KEPT:]}
        text = f"callback {callback}: {setting} is {value} from env_step {counters.env_step} on"
        return LogLine(self._experiment, text)

    def _say(self, text: str, *, failed: bool = False) -> LogLine:
        return LogLine(self._experiment, text, "error" if failed else "warning")

    # --- over a restart ---

    def snapshot(self) -> CallbacksSnapshot:
        """Return the state for a restart."""
        if not self.active and not self.changes:
            return _NOTHING
        waiting = self._waiting
        return CallbacksSnapshot(
            answered=self.answered,
            events=list(self._events),
            returns=list(waiting.returns),
            lengths=list(waiting.lengths),
            env_steps=list(waiting.env_steps),
            left_out=waiting.left_out,
            states=dict(self.states),
            changes=self.all_changes,
            stopped=self._stopped,
            wants_episodes=self._wants_episodes,
            closed=self.closed,
        )

    def restore(self, snapshot: CallbacksSnapshot) -> None:
        """Continue from a snapshot."""
        self.answered, self.states, self.changes = snapshot.answered, dict(snapshot.states), dict(snapshot.changes)
        self._events = deque[CallbackEvent](snapshot.events)
        self._waiting = _Waiting(
            list(snapshot.returns), list(snapshot.lengths), list(snapshot.env_steps), snapshot.left_out
        )
        self._stopped, self.closed = snapshot.stopped, snapshot.closed
        self._wants_episodes = snapshot.wants_episodes

    def resume(self, snapshot: CallbacksSnapshot) -> None:
        """Continue a resumed run from the snapshot of the former run, without its end."""
        self.restore(snapshot)
        kept = (event for event in self._events if not isinstance(event, Started | Ended))
        self._events = deque[CallbackEvent](kept)
        self.closed, self._wants_episodes = False, True
