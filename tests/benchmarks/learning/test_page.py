"""docs/examples.md: what stored runs of an example needed, beside its file."""

from __future__ import annotations

from pathlib import Path

from remuda.benchmarks.learning.page import example_of, needed, page
from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.stored import store
from remuda.benchmarks.learning.tasks import BY_NAME

SOLVED, FOR_STEPS, CHANGED = (BY_NAME[name] for name in ("pendulum_ppo", "halfcheetah_sac", "tmaze_ppo_feed_forward"))


def run(task: str, seed: int, env_steps: int, *, reached: bool = True, side: str = OURS) -> Run:
    return Run(task, side, seed, reached, env_steps, 2.0, [(env_steps, 10.0 * seed)])


def test_steps_of_the_quickest_and_of_the_slowest_of_those_that_got_there() -> None:
    runs = [run(SOLVED.name, 0, 9_000), run(SOLVED.name, 1, 25_000), run(SOLVED.name, 2, 99_999, reached=False)]
    assert needed(SOLVED, runs) == "9,000 to 25,000; 2 of 3"
    assert needed(SOLVED, runs[2:]) == "0 of 1 in 99,999"
    assert needed(SOLVED, []) == ""


def test_returns_where_all_runs_have_the_same_steps() -> None:
    runs = [run(FOR_STEPS.name, seed, 1_000_000) for seed in (3, 1)]
    assert needed(FOR_STEPS, runs) == "returns 10 to 30 after 1,000,000; 2"
    assert needed(FOR_STEPS, [run(FOR_STEPS.name, 1, 200_000)]) == "returns 10 after 200,000; 1"


def test_the_line_of_an_example_with_stored_runs_and_of_one_without(tmp_path: Path) -> None:
    runs = [run(SOLVED.name, 0, 9_000), run(SOLVED.name, 0, 1, side=PEER)]
    store(SOLVED, runs, None, tmp_path)
    (tmp_path / "pendulum.png").touch()
    link = "[pendulum_ppo.yaml](../examples/pendulum_ppo.yaml)"
    picture = "[pendulum.png](../benchmarks/results/learning/pendulum.png)"
    lines = page(tmp_path, [SOLVED, FOR_STEPS, CHANGED]).splitlines()
    assert f"| {link} | PPO on Pendulum-v1: a return of -200 | 9,000; 1 of 1 | {picture} | `pendulum_ppo` |" in lines
    assert (
        "| [half_cheetah_sac.yaml](../examples/half_cheetah_sac.yaml) | SAC on HalfCheetah-v5: 1,000,000 steps |  |  "
        "| `halfcheetah_sac` |"
    ) in lines
    assert example_of(CHANGED) is None, "it is no longer the example"
