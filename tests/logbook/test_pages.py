"""What TensorBoard shows of settings and results."""

from __future__ import annotations

from pydantic import JsonValue

from remuda.logbook.tensorboard import as_markdown, hyperparameters, listed, results_of
from remuda.tests.client.statuses import status

SETTINGS: dict[str, JsonValue] = {
    "name": "x",
    "seed": 3,
    "policy": {"type": "dqn", "hidden": [8, 8], "double": True, "lambda": None},
    "env": {"id": "A-v1", "kwargs": {}},
    "log": {"interval_train_iters": 100},
    "checkpoint": {"keep": 5},
}


def test_settings_are_a_block_of_yaml() -> None:
    assert as_markdown({"seed": 3, "policy": {"hidden": [8]}}) == "    seed: 3\n    policy:\n      hidden:\n      - 8\n"


def test_runs_are_compared_by_what_makes_them_learn() -> None:
    assert hyperparameters(SETTINGS) == {
        "seed": 3,
        "policy.type": "dqn",
        "policy.hidden": "[8, 8]",
        "policy.double": True,
        "env.id": "A-v1",
        "env.kwargs": "{}",
    }
    assert ("policy.lambda", None) in listed(SETTINGS)


def test_results_are_numbers() -> None:
    ended = status(best_return=None, last_return=float("nan"))
    assert set(results_of(ended)) == {"env_step", "train_iter", "wall_s"}
    assert results_of(status())["best_return"] == status().best_return
