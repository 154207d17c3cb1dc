"""A run with several policies: each counts, learns, is saved and resumed by itself, and all of them together."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from remuda.environments.errors import EnvironmentBuildError
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.runner.serial import RunResult, Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import PolicyFolder, RunFolder
from remuda.tests.environments.leaving import Leaving
from remuda.tests.faults.sizes import LONG
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.reading import records
from remuda.tests.runner.killing import Killer, run_to_its_death
from remuda.tests.runner.runs import Flag, run_tiny
from remuda.tests.runner.several import (
    LENGTHS,
    NUM_ENVS,
    collectors_games,
    evaluators_games,
    forget_games,
    several_config,
)
from remuda.tests.runner.test_run_folder import rows
from remuda.training.journal import RunJournal, open_for_policies
from remuda.training.journal_entry import Recovered

looks_at_the_run = pytest.mark.xdist_group("a run of several policies")
AGENTS = {"ends": ("a0", "a2"), "middle": ("a1",)}


@dataclass(frozen=True)
class Ended:
    result: RunResult
    games: list[Leaving]
    """The collector's."""
    evaluated: list[Leaving]
    """The evaluator's."""

    def folder(self, policy: str) -> PolicyFolder:
        return PolicyFolder(self.result.run_dir, policy)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    config = several_config(tmp_path_factory.mktemp("user"))
    forget_games()
    result = run_tiny(config, Start(tmp_path_factory.mktemp("runs") / "several"))
    return Ended(result, collectors_games(), evaluators_games())


def journaled(folder: RunFolder) -> dict[str, Recovered]:
    journals, damage = open_for_policies(folder.journal, list(AGENTS))
    assert damage is None
    with contextlib.closing(journals[0][0]):
        found = {name: known for name, (_, known) in zip(AGENTS, journals, strict=True)}
    return {name: known for name, known in found.items() if known is not None}


@looks_at_the_run
def test_a_step_of_the_environment_counts_once_and_a_step_of_an_agent_in_its_policy(ended: Ended) -> None:
    taken = sum(game.steps for game in ended.games)
    assert ended.result.reason == "max_env_steps"
    assert ended.result.counters.env_step == taken >= 320
    found = journaled(RunFolder(ended.result.run_dir))
    for name, agents in AGENTS.items():
        of_agents = [step for game in ended.games for step in game.log if step.agent in agents]
        counters = ended.result.policies[name].counters
        assert counters.env_step == taken
        assert counters.episode == sum(step.terminated or step.truncated for step in of_agents)
        ledger = found[name].snapshot.experiment.replay.ledger
        assert ledger.env_steps == taken
        if name == "ends":  # rows of single steps; the rows of the last steps may still wait
            assert len(of_agents) - NUM_ENVS * len(agents) <= ledger.rows <= len(of_agents)
    assert ended.result.counters.train_iter == sum(one.counters.train_iter for one in ended.result.policies.values())
    assert ended.result.best is None


@looks_at_the_run
def test_each_policy_has_its_own_checkpoints_logs_and_curves(ended: Ended) -> None:
    root = ended.result.run_dir
    assert sorted(path.name for path in (root / "ckpt").iterdir()) == ["ends", "middle"]
    assert not (root / "progress.txt").exists()
    for name, agents in AGENTS.items():
        folder = ended.folder(name)
        index = CheckpointIndex(folder.ckpt)
        result = ended.result.policies[name]
        assert index.last is not None
        assert index.last.train_iter == result.counters.train_iter > 0
        assert index.best is not None
        assert result.best is not None
        assert index.best.reward == result.best.reward_mean
        assert (folder.ckpt / "ckpt_best.pth.tar").exists()
        shown = rows(folder.progress)
        assert [row["Epoch"] for row in shown] == list(range(len(shown)))
        assert int(shown[-1]["TotalEnvInteracts"]) == 320
        names = curves(folder.serial_tb)
        assert "learner_iter/total_loss_avg" in names
        several = [f"evaluator_iter/return_{agent}_mean" in names for agent in agents]
        assert several == [len(agents) > 1] * len(agents)
        assert "saved checkpoint" in folder.learner_log.read_text()
        assert (folder.model / "model.pt").exists()


@looks_at_the_run
def test_evaluations_tell_the_returns_of_each_agent_and_their_mean(ended: Ended) -> None:
    """The return of an agent is known: it does not depend on its actions."""
    of_agent = {f"a{n}": 100 * n * length + length * (length + 1) / 2 for n, length in enumerate(LENGTHS)}
    for name, agents in AGENTS.items():
        mean = sum(of_agent[agent] for agent in agents) / len(agents)
        records = CheckpointIndex(ended.folder(name).ckpt).records
        assert [record.reward for record in records if record.reward is not None] == pytest.approx(
            [mean] * sum(record.reward is not None for record in records)
        )
        log = ended.folder(name).serial_evaluator_log.read_text()
        assert log.count("[EVALUATOR] env") == sum(len(game.seeds) for game in ended.evaluated) > 0, "the same episodes"
        (first, *_) = rows(ended.folder(name).progress)
        assert float(first["AverageTestEpRet"]) == pytest.approx(mean)
        assert float(first["TestEpLen"]) == max(LENGTHS), "an episode of the environment"


@looks_at_the_run
def test_the_same_seed_gives_the_same_numbers_and_weights_twice(tmp_path: Path, ended: Ended) -> None:
    again = run_tiny(several_config(tmp_path / "user"), Start(tmp_path / "run"))
    for name in AGENTS:
        one, two = ended.folder(name), PolicyFolder(again.run_dir, name)
        assert one.progress.read_bytes() == two.progress.read_bytes()
        last = CheckpointIndex(one.ckpt).last
        assert last is not None
        first, second = (torch.load(folder.ckpt / last.file, weights_only=True)["model"] for folder in (one, two))
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_all_agents_may_share_one_policy_in_an_ordinary_run_folder(tmp_path: Path) -> None:
    config = several_config(tmp_path / "user", "stop.max_env_steps=150", policies={})
    forget_games()
    result = run_tiny(config, Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert result.counters.env_step == sum(game.steps for game in collectors_games())
    steps = sum(len(game.log) for game in collectors_games())
    with contextlib.closing(RunJournal(folder.journal)) as journal:
        found = journal.read()
    assert found is not None
    assert steps - NUM_ENVS * 3 <= found.snapshot.experiment.replay.ledger.rows <= steps
    assert result.best is not None
    assert not result.policies
    of_agents = {f"evaluator_iter/return_a{number}_mean" for number in range(len(LENGTHS))}
    assert of_agents <= set(curves(folder.serial_tb))
    assert float(rows(folder.progress)[0]["AverageTestEpRet"]) > 0


def test_killed_anywhere_all_policies_go_on_from_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killer, user = Killer(at=0), tmp_path / "user"
    short = several_config(user, "stop.max_env_steps=200")
    run_to_its_death(short, tmp_path / "whole", killer, monkeypatch)
    moments = [*range(killer.moments)] if LONG else [3, *range(20, killer.moments, killer.moments // 2)]
    lost = 0
    for at in moments:
        root = tmp_path / f"killed-{at}"
        run_to_its_death(short, root, Killer(at), monkeypatch)
        config = several_config(user, "stop.max_env_steps=300")
        try:
            known = {name: found.snapshot.counters.env_step for name, found in journaled(RunFolder(root)).items()}
            assert len(set(known.values())) <= 1, (at, known)
            forget_games()
            result = run_tiny(config, Start(root, "resume"))
        except CheckpointError:  # there was none yet
            lost += 1
            continue
        taken = sum(game.steps for game in collectors_games())
        assert result.reason == "max_env_steps", at
        found = journaled(RunFolder(root))
        for name in AGENTS:
            folder = PolicyFolder(root, name)
            assert result.policies[name].counters.env_step == known[name] + taken, at
            assert "starts empty" not in folder.serial_evaluator_log.read_text(), at
            assert {chunk.meta.file for chunk in found[name].chunks} == {file.name for file in folder.data.iterdir()}
            shown = rows(folder.progress)
            assert [row["Epoch"] for row in shown] == list(range(len(shown))), at
            assert int(shown[-1]["TotalEnvInteracts"]) == 300, at
    assert lost < len(moments) / 2


@pytest.mark.parametrize("shared", [True, False])
def test_self_play_against_older_checkpoints(tmp_path: Path, shared: bool) -> None:
    """Agents that older checkpoints play are not counted as episodes, nor learned from; a resumed run has the same
    opponents again."""
    policies = {} if shared else {"one": {"agents": ["a0"]}, "two": {"agents": ["a1", "a2"]}}
    config = several_config(
        tmp_path / "user", "self_play.share=1.0", "self_play.keep=2", "checkpoint.keep=1", "stop.max_env_steps=250",
        "buffer.min_rows=10",
        policies=policies,
    )  # fmt: skip
    forget_games()
    first = run_tiny(config, Start(tmp_path / "run"), stop=Flag(looks=60))
    games = collectors_games()
    forget_games()
    second = run_tiny(config, Start(tmp_path / "run", "resume"))
    games += collectors_games()
    assert (first.reason, second.reason) == ("stopped", "max_env_steps")
    for name in policies or [""]:
        folder = PolicyFolder(second.run_dir, name) if name else RunFolder(second.run_dir)
        names = curves(folder.serial_tb)
        played = [
            record.text.split(" plays against older checkpoints, too: ")
            for record in records(folder.serial_evaluator_log)
        ]
        against = [(one[0], one[1].split(", ")) for one in played if len(one) == 2]
        assert against
        assert not any(judged in older for judged, older in against), "a checkpoint is not judged against itself"
        assert "evaluator_iter/against_past_mean" in names
        assert "collector_step/against_past_mean" in names
        index = CheckpointIndex(folder.ckpt)
        assert index.best is not None
        evaluated = [record.train_iter for record in index.records if record.reward is not None]
        assert index.best.train_iter == max(evaluated), "the newest counts as the best"
    known = journal_rows(RunFolder(first.run_dir), list(policies) or [""])
    by_episode = [[step for step in game.log if step.episode == n] for game in games for n in range(len(game.seeds))]
    longest = sum(max((step.step + 1 for step in steps), default=0) for steps in by_episode)
    steps = sum(len(game.log) for game in games)
    assert 0 < sum(known.values()) <= longest < 0.6 * steps, "of each episode the steps of one agent"


def journal_rows(folder: RunFolder, names: list[str]) -> dict[str, int]:
    journals, _ = open_for_policies(folder.journal, names)
    with contextlib.closing(journals[0][0]):
        return {
            name: found.snapshot.experiment.replay.ledger.rows
            for name, (_, found) in zip(names, journals, strict=True)
            if found is not None
        }


def test_an_agent_without_a_policy_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    config = several_config(tmp_path / "user", policies={"ends": {"agents": ["a0"]}})
    with pytest.raises(EnvironmentBuildError, match="agent a1 belongs to no policy"):
        run_tiny(config, Start(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
