"""Whole runs on a real Slurm: to the end, and over jobs that are cancelled, requeued, preempted, and out of time."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import psutil
import pytest

from remuda.buffer.chunk import read_meta
from remuda.client import Client
from remuda.tests.cluster.conftest import SlurmRun, Starter
from remuda.tests.cluster.slurm_cluster import SlurmCluster
from remuda.tests.parallel.game_folder import HELD_GAME, make_game_folder
from remuda.tests.parallel.reading import Joined, index, joined, pids, texts
from remuda.tests.parallel.user_folder import ENDLESS, HELD, UserFolder
from remuda.tests.patience import until

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.timeout(300)]

SECRET = "aR3allyS3cretValue"
CHUNK, VECTOR = 32, 4
"""Environment steps of a chunk, and environments of a collector."""
LONG: dict[str, dict[str, object]] = {**ENDLESS, "buffer": {"capacity": 10**6}}
"""Nothing is evicted, so that all payloads can be counted at the end."""
TWO: dict[str, object] = {
    "little": {"agents": ["small"]},
    "long": {"agents": ["tall"], "learner": {"learning_rate": 0.004}},
}
"""`policies`: one for each agent."""


def user_of(tmp_path: Path, changes: dict[str, dict[str, object]] | None = None) -> UserFolder:
    """A user whose config has one line more than for this machine alone."""
    user = UserFolder.make(tmp_path / "user", changes)
    with user.config.open("a") as file:
        file.write("launch: {on: slurm}\n")
    return user


def workers(run: SlurmRun, role: str) -> list[Joined]:
    log = run.run / "log" / "coordinator_logger.txt"
    return [one for one in joined(log) if one.role == role] if log.exists() else []


def wait_until_held(run: SlurmRun, collectors: int = 2) -> None:
    """Until so many collectors wait in their environments: each has worked, and the run cannot end."""

    def held() -> bool:
        found = pids(run.run, "collector") if workers(run, "collector") else []
        return run.going_on() and len(found) >= collectors and run.user.held(found[-collectors:])

    until(held, f"{collectors} collectors wait in their environments")


def check_counters(run: SlurmRun, out: str) -> int:
    """Every step of an accepted chunk counts, and counts once. Returns env_step."""
    told = re.search(r"^env_step (\d+), train_iter \d+, ", out, re.MULTILINE)
    assert told is not None
    env_step = int(told[1])
    metas = [read_meta(path) for path in (run.run / "data").iterdir()]
    assert max(Counter(meta.chunk for meta in metas).values()) == 1
    assert sum(meta.env_steps for meta in metas) == env_step
    return env_step


def check_everything_was_handed_in(run: SlurmRun, out: str) -> None:
    """Not one step was lost, although every process has ended and was started again."""
    assert check_counters(run, out) == sum(map(run.user.steps, pids(run.run, "collector")))
    assert f"train_iter {index(run.run)['last']}, " in out


def check_nothing_is_left(run: SlurmRun) -> None:
    assert not list(run.launches.iterdir())
    until(lambda: not run.cluster.jobs(""), "the end of all jobs")

    def of_run() -> list[psutil.Process]:
        listed = psutil.process_iter(["cmdline"])
        return [one for one in listed if str(run.launches) in " ".join(one.info["cmdline"] or [])]

    until(lambda: not of_run(), "the end of all processes")  # a job that is completing is not listed any more


def test_a_run_goes_to_its_end_and_nothing_is_left(launched: Starter, tmp_path: Path) -> None:
    run = launched(user_of(tmp_path))
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    assert "horse finished: max_env_steps; best return " in ended.out
    assert "submitted the coordinator and its learner as job" in ended.err
    env_step = check_counters(run, ended.out)
    assert env_step == sum(map(run.user.steps, pids(run.run, "collector")))
    check_nothing_is_left(run)


def test_each_of_two_policies_has_a_learner_in_the_coordinators_job(launched: Starter, tmp_path: Path) -> None:
    changes: dict[str, dict[str, object]] = {"env": {**HELD_GAME["env"], "kwargs": {}}, "stop": {"max_env_steps": 2000}}
    user = make_game_folder(tmp_path / "user", TWO, changes)
    with user.config.open("a") as file:
        file.write("launch: {on: slurm}\n")
    run = launched(user)
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    assert len(pids(run.run, "learner")) == 2
    told = re.search(r"^env_step (\d+), ", ended.out, re.MULTILINE)
    assert told is not None
    assert int(told[1]) == sum(map(user.steps, pids(run.run, "collector"))) >= 2000
    check_nothing_is_left(run)


def test_a_cancelled_collector_is_replaced_and_no_step_counts_twice(launched: Starter, tmp_path: Path) -> None:
    user = user_of(tmp_path, HELD)
    user.hold()
    run = launched(user)
    wait_until_held(run)
    victim = run.cluster.jobs("-collector", "RUNNING")[0]
    run.cluster.says("scancel", victim)
    until(lambda: run.going_on() and len(workers(run, "collector")) == 3, "another collector")
    user.release()
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    assert f"collector job {victim} ended: cancelled" in ended.err
    assert "submitted 1 collector job as array" in ended.err
    env_step, taken = check_counters(run, ended.out), sum(map(user.steps, pids(run.run, "collector")))
    assert env_step <= taken <= env_step + CHUNK + VECTOR, "at most the chunk that was being filled"
    check_nothing_is_left(run)


def test_a_requeued_coordinator_goes_on_with_exact_counters(launched: Starter, tmp_path: Path) -> None:
    user = user_of(tmp_path, HELD)
    user.hold()
    run = launched(user)
    wait_until_held(run)
    [head] = run.cluster.jobs("-head", "RUNNING")
    run.cluster.says("scontrol", "requeue", head)
    until(lambda: run.going_on() and len(workers(run, "learner")) == 2, "the learner of the job's second life")
    user.release()
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    assert "horse finished: max_env_steps" in ended.out
    assert len(workers(run, "collector")) >= 2
    said = texts(run.run / "log" / "learner" / "learner_logger.txt")
    assert any(text.startswith("loaded checkpoint") for text in said), "the second learner began at a checkpoint"
    env_step = check_counters(run, ended.out)
    assert env_step == sum(map(user.steps, pids(run.run, "collector"))), "no collector was lost"
    check_nothing_is_left(run)


def test_jobs_hand_in_before_the_end_of_their_walltime(launched: Starter, tmp_path: Path) -> None:
    user = user_of(tmp_path, LONG)
    run = launched(user, "--set", "launch.slurm.walltime_min=1", "--set", "launch.slurm.notice_s=30")
    until(lambda: run.going_on() and len(workers(run, "learner")) == 2, "the learner of the job's second life")
    until(lambda: run.going_on() and len(workers(run, "collector")) >= 4, "the collectors of the second life")
    with Client(run.own_dir / "connection.json") as client:
        [experiment] = client.status().experiments
        client.stop(experiment.id)
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    assert "horse stopped" in ended.out
    said = texts(run.run / "log" / "coordinator_logger.txt")
    assert any("handing over to the next start" in text for text in said)
    check_everything_was_handed_in(run, ended.out)
    check_nothing_is_left(run)


def test_no_secret_of_a_shell_reaches_jobs(launched: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    user = user_of(tmp_path, HELD)
    user.hold()
    run = launched(user)
    wait_until_held(run)
    files = [run.own_dir / ".keys" / name for name in ("coordinator", "operator", "worker")]
    secrets = [SECRET, *(json.loads(file.read_text())["secret"] for file in files)]
    shown = [run.cluster.says("scontrol", "show", "job"), *(path.read_text() for path in run.own_dir.glob("*.sh"))]
    for process in psutil.process_iter(["cmdline"]):
        try:
            if str(run.own_dir) in " ".join(process.info["cmdline"] or []):
                shown += [*process.cmdline(), *process.environ().values()]
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    kept = [path.read_bytes() for path in (run.cluster.folder / "state").rglob("*") if path.is_file()]
    assert len(shown) > 50
    for secret in secrets:
        assert not any(secret in text for text in shown)
        assert not any(secret.encode() in content for content in kept)
    user.release()
    assert run.command.ended().code == 0


def test_a_preempted_job_hands_in_at_its_notice_and_is_started_again(launched: Starter, tmp_path: Path) -> None:
    user = user_of(tmp_path, LONG)
    run = launched(user)
    until(lambda: run.going_on() and len(workers(run, "collector")) == 2, "both collectors")
    quiet = ("--output=/dev/null", "--time=1", "--wrap=sleep 5")
    run.cluster.says("sbatch", "--partition=urgent", "--exclusive", "--nodes=3", *quiet)
    until(lambda: run.going_on() and len(workers(run, "learner")) == 2, "the learner of the job's second life")
    until(lambda: run.going_on() and len(workers(run, "collector")) >= 4, "the collectors of the second life")
    with Client(run.own_dir / "connection.json") as client:
        [experiment] = client.status().experiments
        client.stop(experiment.id)
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    check_everything_was_handed_in(run, ended.out)
    check_nothing_is_left(run)


def test_workers_without_the_folder_work_by_streams(launched: Starter, cluster: SlurmCluster, tmp_path: Path) -> None:
    """Their jobs are told by Slurm where the coordinator is, and again after its job has begun again elsewhere."""
    if not cluster.has_blind_node:
        pytest.skip("nobody may make a mount namespace here")
    user = user_of(tmp_path, HELD)
    user.hold()
    places = ("--set", "launch.slurm.partition=blind", "--set", "launch.slurm.learner_partition=main")
    before = set(left_on_nodes())
    run = launched(user, *places, runs=cluster.unseen / "runs")
    wait_until_held(run)
    [head] = run.cluster.jobs("-head", "RUNNING")
    run.cluster.says("scontrol", "requeue", head)
    until(lambda: run.going_on() and len(workers(run, "learner")) == 2, "the learner of the job's second life")
    user.release()
    ended = run.command.ended()
    assert ended.code == 0, ended.err + run.cluster.describe()
    assert ended.err.count("works without the shared folder") >= 3
    env_step = check_counters(run, ended.out)
    assert env_step == sum(map(user.steps, pids(run.run, "collector"))), "nothing was lost"
    assert not (run.run / "vars.pkl").exists(), "no pickle crosses a socket"
    assert set(left_on_nodes()) <= before
    check_nothing_is_left(run)


def left_on_nodes() -> list[Path]:
    """Folders of jobs that do not see the launch's."""
    return [*Path("/tmp").glob("remuda-job-*"), *Path("/tmp").glob("remuda-collector_*")]


def test_a_cancelled_coordinator_ends_the_launch(launched: Starter, cluster: SlurmCluster, tmp_path: Path) -> None:
    user = user_of(tmp_path, ENDLESS)
    run = launched(user)
    until(lambda: run.going_on() and len(workers(run, "collector")) == 2, "both collectors")
    until(lambda: (run.run / "ckpt" / "index.json").exists(), "a checkpoint to go on from")
    [head] = cluster.jobs("-head", "RUNNING")
    cluster.says("scancel", head)
    ended = run.command.ended()
    assert ended.code == 1
    assert f"the coordinator's job {head}: cancelled" in ended.err
    until(lambda: not cluster.jobs(""), "the end of all jobs")
    again = launched(user, "--run-dir", str(run.run), "--resume", "--set", "stop.max_env_steps=1")
    ended = again.command.ended()
    assert ended.code == 0, ended.err + cluster.describe()
    assert os.listdir(run.launches) == [path.name for path in run.launches.iterdir() if list(path.glob("*.txt"))]


def test_a_mistake_is_told_in_slurms_own_words_and_nothing_is_left(launched: Starter, tmp_path: Path) -> None:
    run = launched(user_of(tmp_path), "--set", "launch.slurm.partition=moon")
    ended = run.command.ended()
    assert ended.code == 1
    assert "sbatch says: sbatch: error: invalid partition specified: moon" in ended.err
    assert not list(run.launches.iterdir())
    assert not run.cluster.jobs("")
