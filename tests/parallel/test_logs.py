"""The text logs of parallel mode: which lines stand where, and that they agree with each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.parallel.conftest import Finished
from remuda.tests.parallel.reading import (
    UUID,
    Record,
    index,
    joined,
    key_values,
    names,
    policy_file,
    records,
    table,
    texts,
)

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a finished parallel run")]

INTEGER, NUMBER = r"-?\d+", r"-?\d+\.\d{6}"
COLLECT = names("""
episode_count envstep_count train_sample_count avg_envstep_per_episode avg_sample_per_episode
avg_envstep_per_sec avg_train_sample_per_sec avg_episode_per_sec collect_time reward_mean reward_std
each_reward reward_max reward_min total_envstep_count total_train_sample_count total_episode_count
total_duration
reward_median length_mean length_std length_max length_min length_median
discounted_return_mean discounted_return_std discounted_return_max discounted_return_min discounted_return_median
""")
EVALUATION = names("""
train_iter ckpt_name episode_count envstep_count evaluate_time avg_envstep_per_episode avg_envstep_per_sec
avg_time_per_episode reward_mean reward_std each_reward reward_max reward_min
reward_median length_mean length_std length_max length_min length_median
discounted_return_mean discounted_return_std discounted_return_max discounted_return_min discounted_return_median
""")
WORKER = names("""
train_iter episode_count step_count avg_step_per_episode avg_time_per_step avg_time_per_episode
reward_mean reward_std reward_max reward_min reward_median
length_mean length_std length_max length_min length_median
discounted_return_mean discounted_return_std discounted_return_max discounted_return_min discounted_return_median
""")
LEARN = names("""
cur_lr_avg total_loss_avg q_value_avg target_q_value_avg td_error_avg grad_norm_avg
total_loss_std total_loss_max total_loss_min total_loss_median
q_value_std q_value_max q_value_min q_value_median
td_error_std td_error_max td_error_min td_error_median
grad_norm_std grad_norm_max grad_norm_min grad_norm_median
epsilon_avg
""")
SAMPLE = ["use_avg", "use_max", "priority_avg", "priority_max", "priority_min", "staleness_avg", "staleness_max"]
THROUGHPUT = names("""
pushed_in sampled_out removed current_have samples_per_insert policy_lag
num_transitions num_collected_episodes memory_usage_mb/buffer
""")


def logs(finished: Finished, role: str) -> list[Path]:
    return sorted((finished.run / "log" / role).glob("*_logger.txt"))


def commander(finished: Finished, name: str) -> Path:
    return finished.run / "log" / "commander" / f"{name}_logger.txt"


def numbers(text: str) -> list[float]:
    return [float(part) for part in re.findall(NUMBER, text)]


def test_every_line_of_every_log_belongs_to_a_record(finished: Finished) -> None:
    for log in (finished.run / "log").rglob("*_logger.txt"):
        assert records(log), log  # and the reader fails on a first line that starts none


def test_nothing_to_worry_about_is_said_of_an_undisturbed_run(finished: Finished) -> None:
    """But that a turn took long, which is the machine's affair."""
    loud = [
        record
        for log in (finished.run / "log").rglob("*.txt")
        for record in records(log)
        if record.level != "INFO" and not record.text.startswith("a turn of the coordinator's loop took")
    ]
    assert loud == list[Record]()


def test_learner(finished: Finished) -> None:
    log = finished.run / "log" / "learner" / "learner_logger.txt"
    assert "Linear(in_features=3, out_features=16" in texts(log)[0]
    assert texts(log)[0].startswith("[RANK0]: ")
    tables = texts(log, "=== Training Iteration")
    iterations = [int(re.findall(r"=== Training Iteration (\d+) Result ===", text)[0]) for text in tables]
    assert set(range(20, index(finished.run)["last"] + 1, 20)) <= set(iterations)
    for text in tables:
        assert list(table(text)) == LEARN
        assert all(re.fullmatch(NUMBER, value) for value in table(text).values())
    policy = str(policy_file(finished.run))
    assert texts(log, "published policy version 0 of iteration 0")[0].endswith(policy)
    assert f"of iteration {index(finished.run)['last']} in" in texts(log, "published")[-1]
    for record in index(finished.run)["checkpoints"]:
        assert f"saved checkpoint {finished.run / 'ckpt' / record['file']}" in texts(log)


def test_collectors(finished: Finished) -> None:
    assert len(logs(finished, "collector")) == 2
    for log in logs(finished, "collector"):
        affinity, start, *reports = texts(log)
        assert affinity.startswith("affinity: this collector runs on ")
        assert "n_sample: 32, env_num: 4" in start
        total = 0
        for values in map(key_values, reports):
            assert list(values) == COLLECT
            total += int(values["envstep_count"])
            assert int(values["total_envstep_count"]) == total
            rewards = numbers(values["each_reward"])
            assert len(rewards) == int(values["episode_count"])
            assert float(values["collect_time"]) > 0
            if not rewards:  # the last report comes however little there is to tell
                assert values["reward_mean"] == values["reward_max"] == values["reward_min"] == "nan"
                continue
            assert float(values["reward_mean"]) == pytest.approx(sum(rewards) / len(rewards), abs=1e-6)
            assert (float(values["reward_max"]), float(values["reward_min"])) == (max(rewards), min(rewards))


def test_evaluator(finished: Finished) -> None:
    (log,) = logs(finished, "evaluator")
    episodes: list[float] = []
    for text in texts(log)[2:]:
        if text.startswith("[EVALUATOR]"):
            line = (
                rf"\[EVALUATOR\] env [0-2] finished episode, final reward: (.+), current episode: {len(episodes) + 1}"
            )
            match = re.fullmatch(line, text)
            assert match, text
            episodes.append(float(match[1]))
        else:
            values = table(text)
            assert list(values) == EVALUATION
            assert values["ckpt_name"] == f"iteration_{values['train_iter']}.pth.tar"
            assert sorted(numbers(values["each_reward"])) == sorted(episodes)
            assert len(episodes) == int(values["episode_count"]) == 3
            per_episode = float(values["evaluate_time"]) / 3
            assert float(values["avg_time_per_episode"]) == pytest.approx(per_episode, abs=1e-6)
            episodes = []
    assert episodes == []


def test_buffer(finished: Finished) -> None:
    log = finished.run / "log" / "buffer" / "buffer_logger.txt"
    samples, throughputs = texts(log, "=== Sample data"), texts(log, "In the past")
    assert len(samples) + len(throughputs) == len(records(log))
    drawn = [int(re.findall(r"=== Sample data (\d+) Times ===", text)[0]) for text in samples]
    assert drawn == sorted(set(drawn))
    for text in samples:
        values = table(text)
        assert list(values) == SAMPLE
        assert float(values["priority_min"]) <= float(values["priority_avg"]) <= float(values["priority_max"])
        assert 0 <= float(values["staleness_avg"]) <= float(values["staleness_max"])
    assert float(table(samples[-1])["staleness_max"]) > 0
    pushed_in = current = 0
    for text in throughputs:
        assert re.match(r"In the past [\d.]+ seconds, buffer statistics is as follows:\n", text)
        values = table(text)
        assert list(values) == THROUGHPUT
        pushed_in += int(values["pushed_in"])
        current += int(values["pushed_in"]) - int(values["removed"])
        assert int(values["current_have"]) == current
        assert int(values["policy_lag"]) >= 0
    assert float(table(throughputs[-1])["samples_per_insert"]) > 0
    assert pushed_in == sum(read_meta(path).rows for path in (finished.run / "data").iterdir())


@pytest.mark.parametrize("role", ["collector", "evaluator"])
def test_the_commander_hears_every_worker(finished: Finished, role: str) -> None:
    reports = texts(commander(finished, f"commander_{role}"))
    heard = [re.fullmatch(rf"\[{role.upper()}\] worker ({UUID}):", text.splitlines()[0]) for text in reports]
    workers = {one.uuid for one in joined(finished.run / "log/coordinator_logger.txt") if one.role == role}
    assert {match[1] for match in heard if match} == workers
    for values in map(key_values, reports):
        assert list(values) == WORKER
        steps, episodes = int(values["step_count"]), int(values["episode_count"])
        if not episodes:  # a collector's last report comes however little there is to tell
            assert values["avg_step_per_episode"] == values["avg_time_per_episode"] == values["reward_mean"] == "nan"
            continue
        assert values["avg_step_per_episode"] == values["length_mean"], "of episodes that are over"
        if steps > episodes:  # an episode of several steps lasts longer than a step
            assert float(values["avg_time_per_episode"]) > float(values["avg_time_per_step"])


def test_the_commander_evaluates_and_says_why_the_run_ended(finished: Finished) -> None:
    said = texts(commander(finished, "commander"))
    played = [table(text) for text in said if text.startswith("=== Evaluation")]
    (log,) = logs(finished, "evaluator")
    own = [table(text) for text in texts(log, "=== Evaluation")]
    same = ("train_iter", "ckpt_name", "episode_count", "envstep_count", "reward_mean", "each_reward")
    assert [[values[key] for key in same] for values in played] == [[values[key] for key in same] for values in own]
    end = re.fullmatch(r"the run ends: env_step (\d+) has reached max_env_steps 3000", said[-4])
    assert end or any("has reached max_env_steps 3000" in text for text in said)
    assert said[-1].startswith("the run is over after")
    assert "max_env_steps" in said[-1]


def test_the_command_ends_by_saying_what_to_type_next(finished: Finished) -> None:
    out = finished.ended.out
    assert "horse finished: max_env_steps; best return " in out
    assert f"run folder: {finished.run}" in out
    assert f"remuda evaluate {finished.run} -i best" in out
