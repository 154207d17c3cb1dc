"""A custom training loop leaves a run folder that every reader of Remuda's can read, however the loop ends."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.functions import load_policy
from remuda.runner import Run, run_context
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import RunFolderError
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves

pytestmark = pytest.mark.xdist_group("a finished serial run")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "custom-loops.md"
EXAMPLE = PAGE.parents[1] / "examples" / "custom_loop.py"
CONFIG = {"name": "mine", "rate": 0.1, "layers": (8, 8), "odd": math.nan, "kind": dict}


def state(value: float) -> dict[str, object]:
    return {"weights": torch.full((2,), value), "notes": ["a", 1, None]}


def go(run: Run, *, rounds: int = 3, first: int = 0) -> None:
    """So many rounds of ten steps, with an update and an evaluated checkpoint each."""
    for number in range(first + 1, first + rounds + 1):
        returns = [1.0, float(number)]
        run.log(env_step=10 * number, train_iter=number, returns=returns, lengths=[4, 6], metrics={"loss": 1 / number})
        run.log_evaluation(run.save(state(number), env_step=10 * number, train_iter=number), [float(number)], [9])


def table(run: RunFolder) -> list[dict[str, float]]:
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


def test_the_folder_is_that_of_a_serial_run_and_its_files_agree(tmp_path: Path) -> None:
    with run_context(tmp_path / "run", CONFIG, sinks=["csv", "jsonl"]) as run:
        go(run)
        run.log(env_step=40, train_iter=3, metrics={"entropy": 0.5}, returns=[1.0], lengths=[1], info={"won": [1.0]})
    found = {path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {re.sub(r"tfevents\..*", "tfevents", name) for name in found} - {"git_log.txt", "git_diff.txt"} == {
        "config.json", "total_config.py", "formatted_total_config.py", "progress.txt", "progress.csv", "progress.jsonl",
        "ckpt/index.json", "ckpt/ckpt_best.pth.tar", *(f"ckpt/iteration_{n}.pth.tar" for n in (1, 2, 3)),
        "log/buffer/buffer_logger.txt", "log/collector/collector_logger.txt", "log/evaluator/evaluator_logger.txt",
        "log/learner/learner_logger.txt", "log/serial/events.out.tfevents", "log/series.msgpack",
    }  # fmt: skip
    with pytest.raises(CheckpointError, match=r"iteration_3\.pth\.tar: .*loop of its own .*run\.load\(\)"):
        load_policy(tmp_path / "run")
    rows = table(run.folder)
    assert [(row["Epoch"], row["TotalEnvInteracts"], row["loss"]) for row in rows[:3]] == [
        (0, 10, 1.0), (1, 20, 0.5), (2, 30, 1 / 3),
    ]  # fmt: skip
    assert math.isnan(rows[0]["entropy"]), "a metric that comes later gets a column"
    assert (rows[3]["entropy"], rows[3]["AverageWon"]) == (0.5, 1.0)
    assert [row["AverageEpRet"] for row in rows[:3]] == [1.0, 1.5, 2.0]
    assert [row["AverageTestEpRet"] for row in rows[1:]] == [1.0, 2.0, 3.0], "an evaluation is in the row after it"
    seen = curves(run.folder.serial_tb)
    assert seen["collector_step/reward_mean"][:3] == [(10, 1.0), (20, 1.5), (30, 2.0)]
    assert seen["evaluator_iter/reward_mean"] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert [step for step, _ in seen["learner_step/loss_avg"]] == [10, 20, 30]
    assert [
        (record.train_iter, record.env_step, record.reward) for record in CheckpointIndex(run.folder.ckpt).records
    ] == [(1, 10, 1.0), (2, 20, 2.0), (3, 30, 3.0)]
    saved = torch.load(run.folder.best, weights_only=True)
    assert (saved["last_iter"], saved["last_step"], saved["notes"]) == (3, 30, ["a", 1, None])


def test_numbers_and_arrays_may_be_those_of_numpy(tmp_path: Path) -> None:
    with run_context(tmp_path / "run", CONFIG, sinks=["jsonl"]) as run:
        counters = {"env_step": np.int64(10), "train_iter": np.int64(1)}
        returns, lengths = np.array([1.0, 2.0], np.float32), np.array([4, 6])
        run.log(**counters, returns=returns, lengths=lengths, info={"won": returns}, metrics={"loss": np.float32(0.5)})
        run.log_evaluation(run.save(state(1.0), **counters), returns, lengths)
        run.log(env_step=20, train_iter=1, returns=np.zeros(1), lengths=np.ones(1))
    rows = [json.loads(line) for line in (tmp_path / "run" / "progress.jsonl").read_text().splitlines()]
    shown = [(row["env_step"], row["episode"], row["collector/reward_mean"]) for row in rows]
    assert shown == [(10, 2, 1.5), (20, 3, 0.0)]
    (record,) = CheckpointIndex(run.folder.ckpt).records
    assert (record.train_iter, record.episode, record.reward) == (1, 2, 1.5)
    assert curves(run.folder.serial_tb)["collector_step/reward_mean"] == [(10, 1.5), (20, 0.0)]


def test_any_config_is_written_and_named(tmp_path: Path) -> None:
    with run_context(tmp_path / "run", CONFIG):
        pass
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written == {
        "name": "mine", "exp_name": "mine", "rate": 0.1, "layers": [8, 8], "odd": "nan", "kind": "dict",
    }  # fmt: skip
    assert (tmp_path / "run" / "total_config.py").read_text().startswith("exp_config = {'name': 'mine'")
    with run_context(tmp_path / "unnamed", {}):
        pass
    assert json.loads((tmp_path / "unnamed" / "config.json").read_text())["name"] == "unnamed"
    with run_context(tmp_path / "ours", ExperimentConfig(name="ours", env=EnvConfig(id="CartPole-v1"))):
        pass
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["env"]["id"] == "CartPole-v1"


def test_old_checkpoints_go_but_never_the_best_or_the_last(tmp_path: Path) -> None:
    with run_context(tmp_path / "run", CONFIG, keep=2) as run:
        for number, reward in enumerate([0.0, 5.0, 1.0, 2.0, 3.0]):
            run.log_evaluation(run.save(state(reward), env_step=number, train_iter=number), [reward], [1])
    assert [record.train_iter for record in CheckpointIndex(run.folder.ckpt).records] == [0, 1, 3, 4]
    assert torch.load(run.folder.best, weights_only=True)["last_iter"] == 1


def test_a_resumed_run_takes_its_state_back_and_counts_on(tmp_path: Path) -> None:
    with run_context(tmp_path / "run", CONFIG) as run:
        go(run)
        run.log(env_step=99, train_iter=9, returns=[7.0], lengths=[1])  # beyond the last checkpoint: it goes
    with run_context(tmp_path / "run", CONFIG, on_exists="resume") as again:
        taken = again.load()
        assert set(taken) == {"weights", "notes"}
        assert torch.equal(taken["weights"], torch.full((2,), 3.0))  # type: ignore[arg-type]
        assert again.resumed is not None
        assert (again.resumed.env_step, again.resumed.train_iter, again.resumed.episode) == (30, 3, 6)
        go(again, rounds=1, first=3)
    rows = table(again.folder)
    assert [(row["Epoch"], row["TotalEnvInteracts"]) for row in rows] == [(0, 10), (1, 20), (2, 30), (3, 40)]
    assert rows[-1]["Time"] > rows[-2]["Time"]
    assert [record.episode for record in CheckpointIndex(again.folder.ckpt).records] == [2, 4, 6, 8]


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run"), run_context(tmp_path / "a", {}, on_exists="resume"):
        pass
    with run_context(tmp_path / "b", {}) as run, pytest.raises(CheckpointError, match="nothing is resumed"):
        run.load()
    with pytest.raises(RunFolderError, match="no checkpoint yet"), run_context(tmp_path / "b", {}, on_exists="resume"):
        pass


def fail(root: Path, error: BaseException) -> None:
    """A loop that ends so after three rounds."""
    with run_context(root, CONFIG) as run:
        go(run)
        raise error


@pytest.mark.parametrize("error", [RuntimeError("the floor gave way"), KeyboardInterrupt(), SystemExit(3)])
def test_however_a_loop_ends_the_files_are_complete(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        fail(tmp_path / "run", error)
    folder = RunFolder(tmp_path / "run")
    said = folder.serial_evaluator_log.read_text()
    assert "the run is over after " in said
    assert said.rstrip().endswith(f"s: {type(error).__name__}")
    assert ("the floor gave way" in said and "Traceback" in said) == isinstance(error, RuntimeError)
    assert folder.interrupt.exists() != isinstance(error, Exception)
    assert not folder.owner.exists()
    with run_context(tmp_path / "run", CONFIG, on_exists="resume") as again:
        go(again, rounds=1, first=3)


def test_counters_never_go_back_and_only_what_can_be_opened_again_is_saved(tmp_path: Path) -> None:
    with run_context(tmp_path / "run", CONFIG) as run:
        with pytest.raises(ValueError, match="something besides tensors, numbers, text"):
            run.save({"policy": Path("x")}, env_step=1, train_iter=1)
        with pytest.raises(ValueError, match="last_iter would hide entries of Remuda"):
            run.save({"last_iter": 3}, env_step=1, train_iter=1)
        assert list(run.folder.ckpt.iterdir()) == []
        go(run)
        with pytest.raises(ValueError, match="counters never go back"):
            run.log(env_step=29, train_iter=3)
        with pytest.raises(ValueError, match="counters never go back"):
            run.save(state(1.0), env_step=30, train_iter=2)
    assert len(table(run.folder)) == 3


def test_the_code_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(code) == 2
    example = EXAMPLE.read_text("utf-8")
    assert code[0] in example, "the page shows the loop of the example"
    code[0] = example
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(code), "loop.py", "exec"), {"__name__": "__main__"})
    run = RunFolder(tmp_path / "runs" / "cartpole_cem")
    rows = table(run)
    assert len(rows) > 3
    assert rows[-1]["AverageEpRet"] == rows[-1]["EpLen"] > 100
    assert rows[2]["AverageTestEpRet"] > 20, "evaluated after the second round"
    assert run.best.exists()
    assert run.progress_csv.exists()
