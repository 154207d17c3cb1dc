"""A run in which a collector and the learner are killed, and one whose environment always fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from remuda.buffer.chunk import read_meta
from remuda.policy.files.policy_file import read_ref
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.command import Command, Ended
from remuda.tests.parallel.conftest import Launcher, wait_until_held
from remuda.tests.parallel.reading import Joined, index, joined, pids, policy_file, progress, texts
from remuda.tests.parallel.user_folder import HELD, UserFolder
from remuda.tests.patience import until

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a run with deaths")]


@dataclass(frozen=True)
class Survived:
    """A run that went on after a collector and the learner had been killed."""

    run: Path
    user: UserFolder
    ended: Ended
    collector: Joined
    """The incarnation that was killed."""
    learner: Joined

    @property
    def incarnations(self) -> list[Joined]:
        return joined(self.run / "log" / "coordinator_logger.txt")

    @property
    def env_step(self) -> int:
        return index(self.run)["checkpoints"][-1]["env_step"]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    place = tmp_path_factory.mktemp("survived")
    user = UserFolder.make(place / "user", HELD)
    user.hold()  # the run cannot end while its environments wait, so both deaths fall in its midst
    run = place / "run"
    command = Command(place / "scratch", user.root, "launch", user.config, "--run-dir", run)
    try:
        wait_until_held(command, run, user)
        collector = kill_first(run, "collector")
        learner = kill_first(run, "learner")
        user.release()
        ended = command.ended()
        assert ended.code == 0, ended.err
        return Survived(run, user, ended, collector, learner)
    finally:
        command.end()


def kill_first(run: Path, role: str) -> Joined:
    """Kill the first worker of a role; returns once its next incarnation has joined."""
    log = run / "log" / "coordinator_logger.txt"
    killed = next(one for one in joined(log) if one.role == role)
    psutil.Process(killed.pid).kill()
    until(lambda: any((one.uuid, one.incarnation) == (killed.uuid, 2) for one in joined(log)), f"a {role} is back")
    return killed


def test_it_finished(survived: Survived) -> None:
    assert "horse finished: max_env_steps" in survived.ended.out
    assert survived.env_step >= 3000


def test_the_dead_came_back_under_their_names(survived: Survived) -> None:
    again = sorted((one.role, one.uuid) for one in survived.incarnations if one.incarnation == 2)
    assert again == [("collector", survived.collector.uuid), ("learner", survived.learner.uuid)]
    assert len(survived.incarnations) == 4 + 2
    said = "\n".join(texts(survived.run / "log" / "commander" / "commander_logger.txt"))
    for one in (survived.collector, survived.learner):
        assert f"{one.role} {one.uuid} is gone" in said
        assert (
            said.count(f"{one.role} {one.uuid} joins as {one.role} 0")
            + said.count(f"{one.role} {one.uuid} joins as {one.role} 1")
            == 2
        )


def test_both_incarnations_of_the_collector_worked_and_have_a_log(survived: Survived) -> None:
    metas = [read_meta(path) for path in (survived.run / "data").iterdir()]
    incarnations = {(meta.chunk.worker, meta.chunk.incarnation) for meta in metas}
    assert {(survived.collector.uuid, 1), (survived.collector.uuid, 2)} <= incarnations
    for incarnation in (1, 2):
        name = f"{survived.collector.uuid}_{incarnation:06d}_logger.txt"
        assert texts(survived.run / "log" / "collector" / name)


def test_the_counters_are_exact(survived: Survived) -> None:
    metas = [read_meta(path) for path in (survived.run / "data").iterdir()]
    assert max(Counter(meta.chunk for meta in metas).values()) == 1
    assert sum(meta.env_steps for meta in metas) == survived.env_step
    assert int(progress(survived.run)[-1]["TestEnvInteracts"]) == survived.env_step
    assert f"env_step {survived.env_step}, " in survived.ended.out


def test_only_what_was_unannounced_in_the_killed_collector_is_lost(survived: Survived) -> None:
    taken = sum(map(survived.user.steps, pids(survived.run, "collector")))
    vector = 4
    assert survived.env_step <= taken <= survived.env_step + 32 + vector, "at most the chunk that was being filled"


def test_the_next_learner_went_on_from_the_last_checkpoint(survived: Survived) -> None:
    said = texts(survived.run / "log" / "learner" / "learner_logger.txt")
    networks = [number for number, text in enumerate(said) if text.startswith("[RANK0]")]
    assert len(networks) == 2
    before, after = said[: networks[1]], said[networks[1] :]
    last_saved = [text for text in before if text.startswith("saved checkpoint")][-1].split()[-1]
    assert f"loaded checkpoint {last_saved}" in after
    ref = read_ref(policy_file(survived.run))
    assert ref is not None
    assert (ref.epoch, ref.train_iter) == (2, index(survived.run)["last"])


def test_no_curve_shows_a_step_twice(survived: Survived) -> None:
    found = curves(survived.run / "log" / "learner" / "learner_tb_logger")
    steps = [step for step, _ in found["learner_iter/total_loss_avg"]]
    assert steps == sorted(set(steps))


def test_an_evaluator_that_dies_in_the_last_evaluation_is_replaced(tmp_path: Path, launched: Launcher) -> None:
    """It is stopped before, so that it cannot have played yet when it is killed."""
    user = UserFolder.make(tmp_path / "user", HELD)
    user.hold()
    run = tmp_path / "run"
    command = launched(user.root, "launch", user.config, "--run-dir", run)
    wait_until_held(command, run, user)
    log, commander = run / "log" / "coordinator_logger.txt", run / "log" / "commander" / "commander_logger.txt"
    until(lambda: bool(texts(commander, "evaluation of iteration_0.pth.tar")), "the initial policy is evaluated")
    evaluator = next(one for one in joined(log) if one.role == "evaluator")
    psutil.Process(evaluator.pid).suspend()
    user.release()
    until(lambda: bool(texts(commander, "the run ends")), "the run ends")
    psutil.Process(evaluator.pid).kill()
    ended = command.ended()
    assert ended.code == 0, ended.err
    assert [one.incarnation for one in joined(log) if one.role == "evaluator"] == [1, 2]
    assert index(run)["checkpoints"][-1]["reward"] is not None
    assert not texts(commander, "no final checkpoint or evaluation")


def test_an_environment_that_always_fails_fails_the_run_and_says_why(tmp_path: Path, launched: Launcher) -> None:
    user = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"fail_after": 7}}})
    run = tmp_path / "run"
    command = launched(user.root, "launch", user.config, "--run-dir", run)
    ended = command.ended()
    assert ended.code == 1
    assert "RuntimeError: the horse has bolted" in ended.err
    assert "commander_logger.txt" in ended.err
    said = texts(run / "log" / "commander" / "commander_logger.txt")
    told = [text for text in said if "Traceback (most recent call last)" in text]
    assert all("my_envs.py" in text and "the horse has bolted" in text for text in told)
    assert len(told) >= 5
    assert "the horse has bolted" in said[-1]
    assert command.family() == []
    assert command.leftovers() == []
