"""Recorded training episodes: all are played again, equal to the bit; the first difference is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client.episodes import Record, read_record
from remuda.client.replaying import Outcome, Replayer, Step, replay
from remuda.config.schema import ExperimentConfig
from remuda.runner.serial import Start
from remuda.tests.runner.runs import USER_FILES, run_tiny, tiny_config, write_user_folder
from remuda.tests.runner.several import several_config

SHORT = "stop.max_env_steps=120"


def played(config: ExperimentConfig, run: Path) -> tuple[Record, list[Outcome], int]:
    result = run_tiny(config, Start(run))
    record = read_record(run)
    return record, replay(Replayer(record), record.episodes, lambda count: None), result.counters.episode


def test_every_episode_of_a_run_is_equal_and_its_steps_can_be_looked_at(tmp_path: Path) -> None:
    record, outcomes, counted = played(tiny_config(tmp_path / "user", SHORT), tmp_path / "run")
    assert [(one.difference, one.episode.counted) for one in outcomes] == [(None, True)] * counted
    longest = max(record.episodes, key=lambda one: one.length)
    steps: list[Step] = []
    Replayer(record).play(longest.part, longest.end + 1, [longest.copy], watched=longest, stepped=steps.append)
    assert [step.number for step in steps] == [*range(longest.length + 1)]
    assert sum(step.rewards["agent"] for step in steps[1:]) == longest.returns["agent"]
    assert (steps[0].actions, steps[1].policy_version, steps[-1].policy_version) == ({}, *longest.versions)
    assert [step.observations["agent"][1] for step in steps] == [float(step.number) for step in steps]  # type: ignore[index]


def test_episodes_of_several_policies_and_after_a_broken_copy(tmp_path: Path) -> None:
    """A copy that breaks by its actions breaks again, and has the same replacement."""
    _, outcomes, _ = played(several_config(tmp_path / "games", SHORT), tmp_path / "several")
    assert len(outcomes) > 4
    assert {one.difference for one in outcomes} == {None}
    config = tiny_config(tmp_path / "user", SHORT, "env.kwargs={fails_at: 15}")
    _, outcomes, counted = played(config, tmp_path / "broken")
    assert len(outcomes) == counted
    assert {one.difference for one in outcomes} == {None}


PULL = """
import gymnasium
import numpy as np

class Pull(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-0.7, 0.7, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, 0.0
        return np.zeros(1), {}

    def step(self, action):
        self.time, self.place = self.time + 1, self.place + action[0]
        return np.array([self.place]), float(self.place), False, self.time >= 7, {}
"""


def test_actions_are_given_as_the_environment_got_them(tmp_path: Path) -> None:
    """Of float64, and most of them clipped to a bound that float32 has not."""
    user = tmp_path / "user"
    write_user_folder(user)
    (user / "pull.py").write_text(PULL)
    policy = "policy={type: ppo, hidden: [8], horizon_steps: 8, minibatches: 1, log_std_start: 1.0}"
    config = tiny_config(user, SHORT, 'env={make: "pull:Pull", num_envs: 3, vectorization: sync}', policy)
    _, outcomes, counted = played(config, tmp_path / "run")
    assert [(one.difference, one.episode.counted) for one in outcomes] == [(None, True)] * counted


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("float(self.np_random.normal())", "float(np.random.default_rng().normal())", "the observation is another"),
        ("-abs(self.place), *over", "-abs(self.place) * (1 + 1e-12 * len(MADE)), *over", "the reward is -"),
    ],
    ids=["first states", "rewards"],
)
def test_an_environment_that_does_not_repeat_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    config = tiny_config(tmp_path / "user", SHORT)
    assert before in USER_FILES["walk.py"]
    (tmp_path / "user" / "walk.py").write_text(USER_FILES["walk.py"].replace(before, after))
    _, outcomes, _ = played(config, tmp_path / "run")
    first = next(one for one in outcomes if one.step is not None)
    assert said in (first.difference or "")
    assert any("not reached" in (one.difference or "") for one in outcomes)
