"""A launch whose collector, learner of two ranks, and evaluator are killed, and one that always fails."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psutil
import pytest

from remuda.buffer.chunk import read_meta
from remuda.policy.files.policy_file import read_ref
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.conftest import Launcher, wait_until_held
from remuda.tests.parallel.reading import Joined, index, joined, pids, policy_file, progress, texts
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import until, until_gone

pytestmark = pytest.mark.processes

WITH_RANKS_AND_A_CALLBACK = ("--set", "learner.ranks=2", "--set", "callbacks=[remuda.tests.callbacks:Notes]")


def kill_first(run: Path, role: str) -> Joined:
    """Kill the first worker of a role; returns once its next incarnation has joined."""
    log = run / "log" / "coordinator_logger.txt"
    killed = next(one for one in joined(log) if one.role == role)
    psutil.Process(killed.pid).kill()
    until(lambda: any((one.uuid, one.incarnation) == (killed.uuid, 2) for one in joined(log)), f"a {role} is back")
    return killed


def test_whoever_is_killed_comes_back_and_nothing_is_counted_twice(tmp_path: Path, launched: Launcher) -> None:
    """The run cannot end while its environments wait, so the deaths fall in its course. The evaluator is stopped before
    the end, so that it cannot have played yet when it is killed."""
    user, run = UserFolder.make(tmp_path / "user", HELD), tmp_path / "run"
    user.hold()
    command = launched(user.root, "launch", user.config, "--run-dir", run, *WITH_RANKS_AND_A_CALLBACK)
    wait_until_held(command, run, user)
    coordinator, commander = run / "log/coordinator_logger.txt", run / "log/commander/commander_logger.txt"
    until(lambda: texts(commander, "evaluation of iteration_0.pth.tar"), "the initial policy is evaluated")
    collector = kill_first(run, "collector")
    learner_log = run / "log" / "learner" / "learner_logger.txt"
    until(lambda: texts(learner_log, "world_size 2"), "the learner has two ranks")
    learner = next(one for one in joined(coordinator) if one.role == "learner")
    ranks = psutil.Process(learner.pid).children()
    assert len(ranks) == 1
    kill_first(run, "learner")
    until_gone(ranks)  # they end with rank 0
    evaluator = psutil.Process(next(one.pid for one in joined(coordinator) if one.role == "evaluator"))
    evaluator.suspend()
    user.release()
    until(lambda: texts(commander, "the run ends"), "the run ends")
    evaluator.kill()
    ended = command.ended()
    assert ended.code == 0, ended.err
    assert "horse finished: max_env_steps" in ended.out

    last = index(run)["checkpoints"][-1]
    metas = [read_meta(path) for path in (run / "data").iterdir()]
    assert max(Counter(meta.chunk for meta in metas).values()) == 1
    assert sum(meta.env_steps for meta in metas) == last["env_step"] >= 3_000
    assert int(progress(run)[-1]["TestEnvInteracts"]) == last["env_step"]
    taken = sum(map(user.steps, pids(run, "collector")))
    chunk = int(str(CONFIG["collector"]["chunk_env_steps"]))
    assert last["env_step"] <= taken <= last["env_step"] + chunk + 4, "at most the chunk that was being filled"
    assert {1, 2} <= {meta.chunk.incarnation for meta in metas if meta.chunk.worker == collector.uuid}
    assert f"collector {collector.uuid} is gone" in "\n".join(texts(commander))
    assert last["reward"] is not None, "another evaluator has played"
    assert not texts(commander, "no final checkpoint or evaluation")

    said = texts(learner_log)
    begun = [number for number, text in enumerate(said) if text.startswith("[RANK0]")]
    last_saved = [text for text in said[: begun[-1]] if text.startswith("saved checkpoint")][-1].split()[-1]
    assert f"loaded checkpoint {last_saved}" in said[begun[-1] :]
    ref = read_ref(policy_file(run))
    assert ref is not None
    assert ref.train_iter == index(run)["last"]
    assert ref.epoch == len(begun) == 2
    steps = [step for step, _ in curves(learner_log.with_name("learner_tb_logger"))["learner_iter/total_loss_avg"]]
    assert steps == sorted(set(steps))
    changed = texts(commander, "callback Notes: learner.learning_rate is")
    evaluated = [record for record in index(run)["checkpoints"] if record["reward"] is not None]
    assert len(changed) == len(set(changed)) >= len(evaluated), "each decision of the callback counts once"
