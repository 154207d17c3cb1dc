"""The run folder of parallel mode: files, counters, logs and curves agree with each other and with the environment.

What stands in each file, tests/runner/test_run_folder.py and tests/logbook show.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from remuda.buffer.chunk import parse_name, read_meta
from remuda.client.episodes import read_record
from remuda.collector.steps import steps_taken
from remuda.config.load import load_config
from remuda.logbook.series import Evaluation, Event, Interval, read_series
from remuda.policy.files.policy_file import read_ref
from remuda.tests.logbook.event_reader import curves, films, histograms
from remuda.tests.parallel.conftest import Finished
from remuda.tests.parallel.reading import (
    UUID,
    index,
    joined,
    key_values,
    pids,
    policy_file,
    progress,
    records,
    sha256,
    table,
    texts,
)

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a finished parallel run")]

ALWAYS = """
config.json total_config.py formatted_total_config.py git_log.txt git_diff.txt manifest.json
journal.sqlite progress.txt vars.pkl env_spec.json model/model.pt model/model_info.json
ckpt/ckpt_best.pth.tar ckpt/index.json ckpt/iteration_0.pth.tar
log/coordinator_logger.txt log/buffer/buffer_logger.txt log/learner/learner_logger.txt
log/commander/commander_logger.txt log/commander/commander_collector_logger.txt
log/commander/commander_evaluator_logger.txt log/timers.json log/series.msgpack
steps/collector_0_0.steps.msgpack steps/collector_1_0.steps.msgpack
"""
EVENTS = ("log/buffer/buffer_tb_logger", "log/learner/learner_tb_logger", "log/commander/commander_tb_logger")


def files(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if not path.is_dir()}


def commander(finished: Finished, start: str = "") -> list[str]:
    return texts(finished.run / "log" / "commander" / "commander_logger.txt", start)


def test_the_tree_holds_what_is_promised_and_nothing_else(finished: Finished) -> None:
    run, incarnations = finished.run, joined(finished.run / "log" / "coordinator_logger.txt")
    assert sorted(one.role for one in incarnations) == ["collector", "collector", "evaluator", "learner"]
    assert {one.incarnation for one in incarnations} == {1}
    left = files(run) - set(ALWAYS.split())
    assert set(ALWAYS.split()) <= files(run)
    checkpoints = index(run)["checkpoints"]
    left -= {f"ckpt/{record['file']}" for record in checkpoints}
    left -= {f"model/iteration_{record['train_iter']}.pt" for record in checkpoints}
    left -= {f"log/{one.role}/{one.uuid}_000001_logger.txt" for one in incarnations if one.role != "learner"}
    for folder in EVENTS:
        events = [name for name in left if re.fullmatch(rf"{folder}/events\.out\.tfevents\.\d+\.[^/]+", name)]
        assert len(events) == 1, folder
        left -= set(events)
    policy = [name for name in left if re.fullmatch(rf"policy/policy_{UUID}_\d{{6}}", name)]
    assert len(policy) == 1
    left -= {*policy, f"{policy[0]}.lock"}
    collectors = "|".join(one.uuid for one in incarnations if one.role == "collector")
    chunk = rf"data/({collectors})_000001_\d{{9}}\.safetensors"
    assert {name for name in left if not re.fullmatch(chunk, name)} == set()
    assert [process.pid for process in finished.command.family()] == []
    assert finished.command.leftovers() == []


def test_counters_are_what_the_environments_did_wherever_one_looks(finished: Finished) -> None:
    run, user, last = finished.run, finished.user, index(finished.run)["checkpoints"][-1]
    env_step = last["env_step"]
    assert env_step == sum(map(user.steps, pids(run, "collector")))
    assert sum(map(user.steps, pids(run, "learner"))) == 0
    reports = texts(run / "log" / "commander" / "commander_evaluator_logger.txt")
    (evaluator,) = pids(run, "evaluator")
    assert user.steps(evaluator) == sum(int(key_values(text)["step_count"]) for text in reports)
    assert env_step == sum(read_meta(path).env_steps for path in (run / "data").iterdir())
    record = read_record(run)
    assert [one.counted for one in record.episodes] == [True] * last["episode"]
    assert sum(int(steps_taken(part).sum()) for part in record.parts) == env_step
    sequences: dict[str, list[int]] = {}
    for path in sorted((run / "data").iterdir()):
        sequences.setdefault(parse_name(path.name).worker, []).append(parse_name(path.name).sequence)
    assert [found == list(range(len(found))) for found in sequences.values()] == [True, True]
    logs = [texts(log)[-1] for log in (run / "log" / "collector").glob("*_logger.txt")]
    assert env_step == sum(int(key_values(text)["total_envstep_count"]) for text in logs)
    assert f"env_step {env_step}, train_iter {last['train_iter']}, " in finished.ended.out
    assert f"evaluation of {last['file']} at env_step {env_step}: " in "\n".join(commander(finished))
    assert int(progress(run)[-1]["TestEnvInteracts"]) == env_step
    assert [int(row["TotalEnvInteracts"]) for row in progress(run)] == list(range(0, 3001, 500))
    shown = curves(run / "log" / "commander" / "commander_tb_logger")
    assert shown["evaluator_step/reward_mean"][-1][0] == shown["results/env_step"][0][1] == env_step
    ref = read_ref(policy_file(run))
    assert ref is not None
    assert (ref.epoch, ref.train_iter) == (1, index(run)["last"])


def test_checkpoints_are_listed_kept_and_evaluated(finished: Finished) -> None:
    run, content = finished.run, index(finished.run)
    listed = {record["file"] for record in content["checkpoints"]}
    assert {path.name for path in (run / "ckpt").iterdir()} == listed | {"index.json", "ckpt_best.pth.tar"}
    iterations = [record["train_iter"] for record in content["checkpoints"]]
    assert (iterations[0], iterations[-1]) == (0, content["last"])
    assert len(iterations) <= 1 + 3 + 1, "the initial, keep=3, and the best"
    returns = {
        int(values["train_iter"]): float(values["reward_mean"])
        for values in map(table, commander(finished, "=== Evaluation"))
    }
    assert content["best"] == max(returns, key=lambda train_iter: returns[train_iter])
    assert json.loads((run / "model" / "model_info.json").read_text())["train_iter"] == content["last"]
    for record in content["checkpoints"]:
        path = run / "ckpt" / record["file"]
        assert record["sha256"] == sha256(path)
        assert (record["train_iter"] == content["best"]) == (sha256(run / "ckpt/ckpt_best.pth.tar") == sha256(path))
        saved = torch.load(path, weights_only=True)
        assert (saved["last_iter"], saved["last_step"]) == (record["train_iter"], record["env_step"])
        assert record["reward"] == pytest.approx(returns.get(record["train_iter"]), abs=1e-6)


def test_logs_name_every_worker_and_nothing_to_worry_about(finished: Finished) -> None:
    """But that a turn took long, which is the machine's affair."""
    everything = [record for log in (finished.run / "log").rglob("*_logger.txt") for record in records(log)]
    loud = [record for record in everything if record.level != "INFO"]
    assert [record for record in loud if not record.text.startswith("a turn of the coordinator's loop took")] == []
    workers = joined(finished.run / "log" / "coordinator_logger.txt")
    for role in ("collector", "evaluator"):
        heard = texts(finished.run / "log" / "commander" / f"commander_{role}_logger.txt")
        named = {re.findall(UUID, text.splitlines()[0])[0] for text in heard}
        assert named == {one.uuid for one in workers if one.role == role}
        for one in (one for one in workers if one.role == role):
            assert texts(finished.run / "log" / role / f"{one.uuid}_000001_logger.txt")
    said = commander(finished)
    assert any("has reached max_env_steps 3000" in text for text in said)
    assert said[-1].startswith("the run is over after")
    out = finished.ended.out
    assert "horse finished: max_env_steps; best return " in out
    assert f"remuda evaluate {finished.run} -i best" in out
    assert "my horse" in (finished.run / "git_log.txt").read_text()
    assert "+# not committed" in (finished.run / "git_diff.txt").read_text()
    assert load_config(finished.run / "config.json").config == load_config(finished.user.config).config


def test_curves_series_and_timers_tell_what_the_logs_tell(finished: Finished) -> None:
    run = finished.run
    for folder in run.rglob("*_tb_logger"):
        for tag, points in curves(folder).items():
            if not tag.startswith("collector_iter/"):  # each collector reports at the age of the policy it acts with
                assert [step for step, _ in points] == sorted(step for step, _ in points), tag
    shown = curves(run / "log" / "commander" / "commander_tb_logger")
    told = [table(text) for text in commander(finished, "=== Evaluation")]
    evaluated = [int(values["train_iter"]) for values in told]
    means = [float(values["reward_mean"]) for values in told]
    assert [step for step, _ in shown["evaluator_iter/reward_mean"]] == evaluated
    assert [mean for _, mean in shown["evaluator_iter/reward_mean"]] == pytest.approx(means, rel=1e-5)
    assert all(f"vitals_sec/{role}_rss_mib" in shown for role in ("learner", "collector", "evaluator"))
    ((_, actions),) = histograms(run / "log" / "commander" / "commander_tb_logger").items()
    assert [step for step, _ in actions] == evaluated
    ((_, filmed),) = films(run / "log" / "commander" / "commander_tb_logger").items()
    assert {step for step, _ in filmed} <= set(evaluated)
    said = texts(run / "log" / "learner" / "learner_logger.txt", "saved checkpoint")
    saved = sorted(int(text.rpartition("_")[2].partition(".")[0]) for text in said)
    for weights in histograms(run / "log" / "learner" / "learner_tb_logger").values():
        assert [step for step, _ in weights] == saved

    moments = list(read_series(run / "log" / "series.msgpack"))
    came = {moment.worker for moment in moments if isinstance(moment, Event) and moment.event == "worker_joined"}
    assert came == {one.uuid for one in joined(run / "log" / "coordinator_logger.txt")}
    assert [moment.train_iter for moment in moments if isinstance(moment, Evaluation)] == evaluated
    intervals = [moment for moment in moments if isinstance(moment, Interval)]
    assert intervals[-1].env_step == index(run)["checkpoints"][-1]["env_step"]
    roles = json.loads((run / "log" / "timers.json").read_text())["roles"]
    assert {role: len(found) for role, found in roles.items() if role != "coordinator"} == {
        "learner": 1,
        "collector": 2,
        "evaluator": 1,
    }
    [learner] = roles["learner"].values()
    assert learner["blocks"]["update"]["count"] == index(run)["last"]
