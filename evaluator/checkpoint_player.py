"""Plays checkpoints of an experiment, in environments that are built once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from remuda.config.current import evaluated, on_task
from remuda.config.schema import ExperimentConfig
from remuda.environments.faults import RestartLimit
from remuda.environments.make import SingleEnv, make_single
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.actions import ActionCounts
from remuda.evaluator.evaluate import Episode, evaluate
from remuda.evaluator.films import Films
from remuda.logbook.episode_reports import EpisodeReport
from remuda.policy.algorithms import declaration
from remuda.policy.base import Policy
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.policy.spaces import ActionSpec
from remuda.wire.messages import Task


class CheckpointPlayer:
    """Plays episodes of evaluations. An episode number always has the same seed, whoever plays it and when."""

    def __init__(
        self, config: ExperimentConfig, *, num_envs: int, broke: Callable[[str], None] = lambda text: None
    ) -> None:
        """`broke` gets a text for the log about each environment that is made again. Raises EnvironmentBuildError."""
        self._given, self._num_envs, self._broke = config, num_envs, broke
        self._envs: list[SingleEnv] = []
        self._build(Task())

    def _build(self, task: Task) -> None:
        self._task, self._config = task, evaluated(on_task(self._given, task.kwargs_json))
        config = self._config
        self.films = Films(config)
        """The films of its evaluations, if there are to be any."""
        limit = RestartLimit(config.env.restarts_per_hour, self._broke)
        build = partial(make_single, config.env, source_dir=config.source_dir)
        name = str(config.env.id or config.env.make)
        try:
            for index in range(self._num_envs):
                self._envs.append(ReplaceableEnv(build, index=index, name=name, broke=limit))
        except BaseException:
            self.close()
            raise

    def begin(self, task: Task) -> None:
        """Play at this task from now on. Raises EnvironmentBuildError."""
        if task != self._task:
            self.close()
            self._build(task)

    def play(
        self,
        checkpoint: Path,
        *,
        first_episode: int,
        episodes: int,
        progress: Callable[[int], None] = lambda env_steps: None,
        finished: Callable[[Episode, int], None] = lambda episode, count: None,
    ) -> list[Episode]:
        """Load exactly this file and let its policy play, greedily, the episodes from `first_episode` on.

        Raises CheckpointError, EvaluationError, and BrokenEnvironmentError.
        """
        policy = load_checkpoint_policy(checkpoint, config=self._config).policy
        numbers = range(first_episode, first_episode + episodes)
        return self.play_policy(policy, numbers, progress=progress, finished=finished)

    def play_policy(
        self,
        policy: Policy,
        numbers: Sequence[int],
        *,
        progress: Callable[[int], None] = lambda env_steps: None,
        finished: Callable[[Episode, int], None] = lambda episode, count: None,
        actions: ActionCounts | None = None,
    ) -> list[Episode]:
        """Let a policy play, greedily, the episodes of these numbers. `actions` counts its actions.

        Raises EvaluationError and BrokenEnvironmentError.
        """
        return evaluate(
            self._envs,
            policy,
            seeds=[episode_seed(self._config.seed, number) for number in numbers],
            rng=generator(self._config.seed, "evaluator", 0, "actions"),
            max_episode_steps=self._config.evaluator.max_episode_steps,
            episode_info=self._config.env.episode_info,
            discount=declaration(self._config).rows.discount,
            progress=progress,
            finished=finished,
            acted=_ignore if actions is None else actions.add,
        )

    def action_counts(self) -> ActionCounts | None:
        """A counter for the actions of an evaluation; None if log.histograms is off."""
        return ActionCounts(ActionSpec.of(self._envs[0].action_space)) if self._config.log.histograms else None

    def close(self) -> None:
        """Close the environments."""
        envs, self._envs = self._envs, []
        for env in envs:
            env.close()
        self.films.close()


def _ignore(actions: object) -> None:
    pass


def episode_report(episode: Episode, count: int, *, train_iter: int, env_step: int) -> EpisodeReport:
    """The evaluator log's line for the `count`-th finished episode of an evaluation."""
    return EpisodeReport(
        train_iter=train_iter,
        env_step=env_step,
        env=episode.env_index,
        final_reward=episode.return_,
        episode=count,
        cut_after=episode.length if episode.cut else None,
    )


def cut_warning(episodes: Sequence[Episode]) -> str | None:
    """The warning about an evaluation whose episodes were cut; None if none was."""
    cut = [episode.length for episode in episodes if episode.cut]
    if not cut:
        return None
    return (
        f"{len(cut)} of {len(episodes)} evaluation episodes had not ended after {max(cut)} steps and were cut: their "
        "returns are what they had brought by then; raise evaluator.max_episode_steps where episodes are longer"
    )
