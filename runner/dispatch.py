"""Carries out the commander's decisions in serial mode: checkpoints are saved, played and recorded by this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from remuda.evaluator.evaluate import Episode, cut_warning, episode_report, merged_info
from remuda.runner.callbacks import SerialCallbacks
from remuda.runner.checkpoint_journal import CheckpointJournal
from remuda.runner.components import EXPLORATION, Components, RunHooks
from remuda.runner.status import SerialStatus
from remuda.training.commander.commander import Decision, EvaluateByTraining, Save, StartEvaluation
from remuda.training.commander.end import End, evaluation_is_too_late
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.commander.outcomes import Outcome, Outcomes
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, Happened, RecordEffect
from remuda.training.recording import record as record_effect
from remuda.wire.messages import CheckpointRecord

LONG_S = 30.0
"""An evaluation that takes longer than this is mentioned in the log, and again each time that this time has passed."""


class _GivenUpError(Exception):
    """An evaluation is stopped, since the run has to end; the message says why."""


@dataclass
class _UnderWay:
    """An evaluation."""

    record: CheckpointRecord
    episodes: int
    started_s: float
    """On the clock, as the next."""
    said_s: float
    over: int = 0
    """Episodes that have ended."""

    def text(self) -> str:
        """For people."""
        return f"evaluating {self.record.file}: {self.over} of {self.episodes} episodes are over"


@dataclass
class SerialDispatch:
    """Saves and plays; what follows from that is the same in both modes (Outcomes)."""

    components: Components
    hooks: RunHooks
    status: SerialStatus
    progress: ProgressRows
    journal: CheckpointJournal
    callbacks: SerialCallbacks
    outcomes: Outcomes = field(init=False)
    _under_way: _UnderWay | None = field(default=None, init=False)
    _overtime_since_s: float | None = field(default=None, init=False)
    """Since when evaluations go on beyond stop.max_wall_s, on the clock; None while none did."""

    def __post_init__(self) -> None:
        live = self.status.live
        self.outcomes = Outcomes(live.identity.id, live.commander, self.progress, self.callbacks.book)

    def carry_out(self, decision: Decision) -> Sequence[Decision]:
        """Carry out a decision that is not to save; returns those that follow from it. Raises OSError, JournalError,
        and what playing raises."""
        match decision:
            case StartEvaluation():
                with self.components.timers("evaluate"):
                    return self._evaluate(decision.record)
            case EvaluateByTraining():
                outcome = self.outcomes.evaluated_by_training(decision.record)
                return self._follow(outcome) if outcome.effects else outcome.decisions
            case End():
                self.status.live.state = "stopping"
                self.record(self.outcomes.run_ends(decision))
            case Save():
                raise AssertionError("saving is followed by a commit: see `save`")
        return ()

    def save(self, save: Save) -> Outcome:
        """Save a checkpoint; returns what is to be done once `write_journal` is committed."""
        components = self.components
        self.status.learning.learner.require_finite()
        rngs = {EXPLORATION: components.rng}
        reached = self.status.reached(self.status.counters())
        record = components.outputs.save(components.algorithm, reached, save.reason, rngs=rngs)
        components.saved(record)
        return self._told(self.outcomes.saved(save.reason, record))

    def write_journal(self) -> None:
        """Write what a resumed run needs besides the checkpoint; `committed` comes once it is. Raises JournalError and
        OSError."""
        priorities = self.status.learning.learner.take_priorities()
        self.status.live.replay.index.update_priorities(priorities.rows, priorities.errors)
        self.journal.write(self.status.reached(self.status.counters()))

    def committed(self) -> None:
        """What was written to the journal is committed."""
        self.journal.sweep()

    def record(self, effects: Iterable[RecordEffect | Happened]) -> None:
        """Carry out the effects."""
        components = self.components
        for effect in effects:
            if isinstance(effect, Happened):
                effect = Emit(effect.experiment, effect.report(self.status.counters()))
            record_effect(effect, components.folder, components.logbook, components.checkpoints)

    def _evaluate(self, record: CheckpointRecord) -> Sequence[Decision]:
        """Evaluate a checkpoint by the weights in memory, which nothing has changed since they were saved or loaded."""
        assert record.train_iter == self.status.learning.train_iter, "the learner has gone on"
        evaluations, started_s = self.components.evaluations, self.hooks.clock()
        self._under_way = _UnderWay(record, self.components.config.evaluator.episodes, started_s, started_s)
        try:
            played = evaluations.play(
                range(self.components.config.evaluator.episodes),
                progress=self._goes_on,
                finished=lambda episode, count: self._episode_finished(record, episode, count),
            )
        except _GivenUpError as why:
            self.status.live.commander.abandon_work()
            self._say(f"evaluation of {record.file} given up: {why}")
            return ()
        finally:
            self._under_way = self.status.waiting_for = None
        duration_s, episodes = self.hooks.clock() - started_s, played.episodes
        self._film(record, steps=episodes[0].length)
        warning = cut_warning(episodes)
        if warning is not None:
            self.components.logbook.say("evaluator", warning, level="warning")
        returns = tuple(episode.return_ for episode in episodes)
        lengths = tuple(episode.length for episode in episodes)
        cut = sum(episode.cut for episode in episodes)
        task = self.status.live.commander.curriculum.task
        result = EvaluationResult(record, returns, lengths, duration_s, merged_info(episodes), cut, task)
        return self._follow(self.outcomes.evaluated(result, actions=played.actions or None))

    def _film(self, record: CheckpointRecord, *, steps: int) -> None:
        """Film the evaluation that is just over, if a film is due."""
        components, evaluations = self.components, self.components.evaluations
        films = evaluations.films
        if not films.due(record.env_step):
            return
        try:
            with components.timers("film"):
                film = films.film(evaluations.policies, env_step=record.env_step, steps=steps, go_on=self._films_on)
        finally:
            self.status.waiting_for = None
        for text in films.take_warnings():
            components.logbook.say("evaluator", text, level="warning")
        if film is not None:
            self.record(self.outcomes.filmed(film, train_iter=record.train_iter, env_step=record.env_step))

    def _told(self, outcome: Outcome) -> Outcome:
        """What follows, once callbacks were told: the same commit has what they decide."""
        with self.components.timers("callbacks"):
            more = self.callbacks.tell()
        return Outcome([*outcome.effects, *more.effects], [*outcome.decisions, *more.decisions])

    def _follow(self, outcome: Outcome) -> Sequence[Decision]:
        outcome = self._told(outcome)
        self.write_journal()
        self.committed()
        self.record(outcome.effects)
        return outcome.decisions

    def _goes_on(self, env_steps: int) -> None:
        """Some steps of an evaluation were taken. Raises _GivenUpError if it has to stop; otherwise shows the
        progress."""
        under_way, now_s = self._under_way, self.hooks.clock()
        assert under_way is not None, "somebody plays"
        why = self._to_end(now_s)
        if why is not None:
            raise _GivenUpError(why)
        self._show(under_way.text(), now_s)
        if now_s - under_way.said_s >= LONG_S:
            under_way.said_s = now_s
            self._say(f"{under_way.text()} after {now_s - under_way.started_s:.0f} s")

    def _films_on(self, env_steps: int) -> bool:
        """Some steps of a film were taken. Shows what is going on; returns whether to go on."""
        now_s = self.hooks.clock()
        self._show("filming an evaluation", now_s)
        return self._to_end(now_s) is None

    def _to_end(self, now_s: float) -> str | None:
        """Why playing has to stop; None if it may continue."""
        if self.hooks.stop.ending:
            return self.hooks.stop.reason
        return "stop.max_wall_s is over" if self._is_too_late(now_s) else None

    def _show(self, waiting_for: str, now_s: float) -> None:
        """What the run is doing instead of collecting and learning."""
        self.status.waiting_for = waiting_for
        status = self.status.news(now_s)
        if status is not None:
            self.hooks.on_progress(status)

    def _is_too_late(self, now_s: float) -> bool:
        stop, wall_s = self.components.config.stop, self.status.live.wall_s(now_s)
        if self._overtime_since_s is None and stop.max_wall_s is not None and wall_s >= stop.max_wall_s:
            self._overtime_since_s = now_s
        waited_s = 0.0 if self._overtime_since_s is None else now_s - self._overtime_since_s
        return evaluation_is_too_late(stop, wall_s=wall_s, waited_s=waited_s)

    def _episode_finished(self, record: CheckpointRecord, episode: Episode, count: int) -> None:
        if self._under_way is not None:
            self._under_way.over = count
        report = episode_report(episode, count, train_iter=record.train_iter, env_step=record.env_step)
        self.components.logbook.emit(report)

    def _say(self, text: str) -> None:
        self.components.logbook.say("commander", text)
