"""docs/examples.md: the configs of examples/, how each ends, and what the stored runs of each showed.

python -m remuda.benchmarks.learning.page > docs/examples.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from remuda.benchmarks.learning.runs import OURS, Run
from remuda.benchmarks.learning.stored import RESULTS, read
from remuda.benchmarks.learning.tasks import TASKS, Task, config_file
from remuda.benchmarks.peers import ROOT

EXAMPLES = ROOT / "examples"
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "callback.yaml": "[a callback of your own](callbacks.md) on CartPole-v1, which ends the run where returns no "
        "longer rise: `tests/runner/test_callbacks.py`",
        "a2c.yaml": "[a new on-policy algorithm](learning.md) on CartPole-v1: "
        "`tests/runner/test_example_algorithms.py`",
        "cartpole_muzero.yaml": "MuZero on CartPole-v0, to 195: `muzero_cartpole` of "
        "[the benchmarks](../benchmarks/README.md)",
        "corridor_ppo.yaml": "PPO on corridors that become longer, to 0.9 in the longest: "
        "[a curriculum](callbacks.md#curricula): `tests/learning/test_curriculum.py`",
        "custom_algorithm.yaml": "[your own algorithm](algorithms.md) on CartPole-v1: "
        "`tests/runner/test_custom_algorithm.py`",
        "ddpg.yaml": "[a new continuous algorithm](learning.md) on Pendulum-v1: the same test",
        "ppo_variant.yaml": "[a variant of PPO](learning.md) on CartPole-v1: the same test",
        "connect_four_league.yaml": "[a league](several-agents.md#leagues) of PPO with two exploiters in connect four",
        "tic_tac_toe_league.yaml": "[a league](several-agents.md#leagues) of DQN in tic-tac-toe",
        "tic_tac_toe_muzero.yaml": "MuZero against itself: [a match](environments.md#games-for-two)",
        "transformer_policy.yaml": "[a transformer](learning.md#encoders) on CartPole-v1 without velocities: "
        "the same test",
    }
)
"""Examples that no task runs: what they are, and what runs them to their end."""
_NAMES = {"bootstrapped_dqn": "Bootstrapped DQN", "crossq": "CrossQ", "muzero": "MuZero", "rainbow": "Rainbow"}
_HEAD = """\
<!-- Written by `python -m remuda.benchmarks.learning.page`; edit benchmarks/learning/page.py instead. -->
# Examples

Each file of `examples/` has good settings of one algorithm in one environment. `remuda train ppo --env LunarLander-v3`
(and `launch`, `submit`) finds the file of this pair, or takes sensible settings and says so. `make examples` runs all
but those of Pong to their end, with several seeds (a night); `PYTHONPATH=.typing .venv/bin/python -m
remuda.benchmarks.learning cartpole_ppo --folder runs/examples` runs one task and compares it with the stored runs. A
curve that is far from the stored one, with no setting changed, is an error worth reporting.

Steps are environment steps until the mean return of an evaluation reached the return in the second column, of the
quickest and of the slowest seed. An *untrained* seed is there with its random first policy, by luck: CartPole has such
policies. A file that ends after a number of steps has returns instead: means of a run's last three evaluations. A file
without either has no stored runs yet.

| file | ends | steps, and seeds that got there | curve | task |
|---|---|---|---|---|
"""
_MIDDLE = """
Others are run to their end in other ways:

| file | what, and by what |
|---|---|
"""


def page(folder: Path = RESULTS, tasks: Sequence[Task] = TASKS) -> str:
    """The whole page, by the runs stored in `folder`."""
    rows = sorted(_row(task, file, folder) for task in tasks if (file := example_of(task)) is not None)
    others = [f"| {_link(name)} | {what} |\n" for name, what in ELSEWHERE.items()]
    return _HEAD + "".join(rows) + _MIDDLE + "".join(others)


def example_of(task: Task) -> str | None:
    """The file of examples/ that a task runs as it is, apart from its evaluations; None if it runs another one, or
    changes it."""
    file = config_file(task)
    return file.name if file.parent == EXAMPLES and not task.overrides else None


def stored_runs(task: Task, folder: Path = RESULTS) -> list[Run]:
    """Our own runs of a task that are in the folder."""
    path = folder / f"{task.name}.jsonl"
    return [run for run in read(path).runs if run.side == OURS] if path.exists() else []


def needed(task: Task, runs: Sequence[Run]) -> str:
    """What runs of a task needed, or reached; empty where there are none."""
    if not runs:
        return ""
    if task.stop_value is None:
        returns = [f"{value:,.0f}" for value in sorted(run.last_return for run in runs)]
        after = max(run.curve[-1][0] for run in runs)
        return f"returns {_span(returns)} after {after:,}; {len(runs)}"
    reached = sorted(run.env_steps for run in runs if run.reached)
    share = f"{len(reached)} of {len(runs)}"
    if untrained := reached.count(0):
        share += f", {untrained} untrained"
    steps = [f"{step:,}" for step in reached if step]
    if not steps:
        return share if untrained else f"{share} in {max(run.env_steps for run in runs):,}"
    return f"{_span(steps)}; {share}"


def _span(values: Sequence[str]) -> str:
    """From the first to the last, or the one that there is."""
    return " to ".join(dict.fromkeys([values[0], values[-1]]))


def _row(task: Task, file: str, folder: Path) -> str:
    to = f"{task.max_env_steps:,} steps" if task.stop_value is None else f"a return of {task.stop_value:g}"
    runs = stored_runs(task, folder)
    picture = folder / f"{task.environment}.png"
    place = "../benchmarks/results/learning"
    curve = f"[{task.environment}.png]({place}/{task.environment}.png)" if runs and picture.exists() else ""
    algorithm = _NAMES.get(task.algorithm, task.algorithm.upper())
    ends = f"{' '.join([algorithm, *task.variant.split('_')]).strip()} on {task.env_id}: {to}"
    return f"| {_link(file)} | {ends} | {needed(task, runs)} | {curve} | `{task.name}` |\n"


def _link(file: str) -> str:
    return f"[{file}](../examples/{file})"


if __name__ == "__main__":
    sys.stdout.write(page())
