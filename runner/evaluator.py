"""The evaluator of a serial run. It plays when the experiment asks for it, by the weights in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remuda.evaluator.evaluate import Episode, cut_warning, episode_report, merged_info
from remuda.runner.components import Components
from remuda.wire.messages import Evaluate, EvaluationDone, EvaluationFilmed, Task, WorkerMessage
from remuda.worker.serve import AskedToEndError

LONG_S = 30.0
"""An evaluation that takes longer than this is mentioned in the log, and again each time that this time has passed."""


@dataclass
class _Progress:
    """An evaluation under way."""

    file: str
    episodes: int
    started_s: float
    """On the clock, as the next."""
    logged_s: float
    over: int = 0
    """Episodes that have ended."""

    def __str__(self) -> str:
        return f"evaluating {self.file}: {self.over} of {self.episodes} episodes are over"


class SerialEvaluator:
    """Plays for all policies of the run."""

    def __init__(
        self,
        components: Sequence[Components],
        clock: Callable[[], float],
        send: Callable[[WorkerMessage], None],
        look_around: Callable[[float], None],
        lease: int,
    ) -> None:
        """`send` passes a message on to the experiment, under the number `lease`. `look_around` is called with the time
        while episodes are played; it may call `drain`."""
        self._components, self._clock = components, clock
        self._send, self._look_around, self._lease = send, look_around, lease
        self._progress: _Progress | None = None
        self._is_filming = False
        self._task = Task()
        self.is_drained = False
        """The run wants no evaluation any more, not even the one under way."""

    @property
    def activity(self) -> str | None:
        """What it does now, for people; None for nothing."""
        return "filming an evaluation" if self._is_filming else None if self._progress is None else str(self._progress)

    def evaluate(self, message: Evaluate) -> None:
        """Play what is asked for. Raises what the environment raises."""
        own = self._components[message.policy_index]
        evaluations, started_s = own.evaluations, self._clock()
        numbers = range(message.first_episode, message.first_episode + message.episodes)
        self._follow_task(message.task)
        self._progress = _Progress(message.checkpoint, message.episodes, started_s, started_s)
        try:
            with own.timers("evaluate"):
                played = evaluations.play(
                    numbers,
                    progress=self._stepped,
                    finished=lambda episode, count: self._finished(message, episode, count),
                )
        except AskedToEndError:
            return
        finally:
            self._progress = None
        episodes = played.episodes
        if (warning := cut_warning(episodes)) is not None:
            own.logbook.say("evaluator", warning, level="warning")
        self._send(
            EvaluationDone(
                self._lease,
                message.evaluation,
                message.first_episode,
                [episode.return_ for episode in episodes],
                [episode.length for episode in episodes],
                self._clock() - started_s,
                merged_info(episodes),
                dict(played.actions),
                sum(episode.cut for episode in episodes),
                message.policy_index,
            )
        )
        self._film(own, message, steps=episodes[0].length)

    def _follow_task(self, task: Task) -> None:
        """Play at this task, in environments of all policies. Raises EnvironmentBuildError."""
        if task != self._task:
            self._task = task
            self._components[0].evaluations.begin(task)

    def _film(self, own: Components, message: Evaluate, *, steps: int) -> None:
        """Film the evaluation that is just over, if a film is due."""
        evaluations = own.evaluations
        films = evaluations.films
        if not films.due(message.env_step):
            return
        self._is_filming = True
        try:
            with own.timers("film"):
                film = films.film(evaluations.policies, env_step=message.env_step, steps=steps, go_on=self._films_on)
        finally:
            self._is_filming = False
        for text in films.take_warnings():
            own.logbook.say("evaluator", text, level="warning")
        if film is not None:
            self._send(EvaluationFilmed(self._lease, message.train_iter, message.env_step, film))

    def _stepped(self, env_steps: int) -> None:
        """Some steps of an evaluation were taken. Raises AskedToEndError if it has to stop."""
        progress, now_s = self._progress, self._clock()
        assert progress is not None, "an evaluation is played"
        self._look_around(now_s)
        if self.is_drained:
            raise AskedToEndError("the evaluation is given up")
        if now_s - progress.logged_s >= LONG_S:
            progress.logged_s = now_s
            text = f"{progress} after {now_s - progress.started_s:.0f} s"
            self._components[0].logbook.say("commander", text)

    def _films_on(self, env_steps: int) -> bool:
        self._look_around(self._clock())
        return not self.is_drained

    def _finished(self, message: Evaluate, episode: Episode, count: int) -> None:
        if self._progress is not None:
            self._progress.over = count
        report = episode_report(episode, count, train_iter=message.train_iter, env_step=message.env_step)
        self._components[message.policy_index].logbook.emit(report)
