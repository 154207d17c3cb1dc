"""Runs of suites in files, one for each suite and algorithm, and their table."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from remuda.benchmarks.learning.runs import Run
from remuda.benchmarks.machine import facts
from remuda.benchmarks.suites import skills
from remuda.benchmarks.suites.suites import SUITES, Suite
from remuda.storage.atomic import write_bytes

RESULTS = Path(__file__).resolve().parents[1] / "results" / "suites"
_HEAD = """\
<!-- Written by `python -m remuda.benchmarks.suites --table`; edit benchmarks/suites/ instead. -->
# Suites by others

Each algorithm learns each environment with the settings that `remuda train ALGORITHM --env ID` takes, and nothing is
tuned for any of them. `pip install 'remuda[suites]'` brings the environments, `PYTHONPATH=.typing .venv/bin/python -m
remuda.benchmarks.suites bsuite --algorithms dqn ppo --settings 0` runs one setting of each family of bsuite.
"""


class Result(msgspec.Struct, frozen=True):
    """What one run showed."""

    environment: str
    setting: str
    """The id of the environment, or of bsuite's setting."""
    seed: int
    env_steps: int
    wall_s: float
    processor_s: float | None
    other_cores: float | None
    """Cores that other programs kept busy meanwhile, on average."""
    curve: list[tuple[int, float]]
    """Environment steps, and the mean return of the evaluation there."""
    date: str
    cpu: str
    versions: dict[str, str]
    record: dict[str, list[float]] = {}
    """The columns of what bsuite recorded."""


class Scored(msgspec.Struct, frozen=True):
    """The number of an environment, over all settings and seeds."""

    scored: str
    value: float
    runs: int
    env_steps: int
    """Most of one run."""


def result_of(environment: str, setting: str, run: Run, record: Mapping[str, list[float]] | None = None) -> Result:
    """What is stored of a run."""
    machine, date = facts(), datetime.datetime.now(datetime.UTC).date().isoformat()
    return Result(
        environment,
        setting,
        run.seed,
        run.env_steps,
        round(run.wall_s, 1),
        None if run.processor_s is None else round(run.processor_s, 1),
        None if run.other_cores is None else round(run.other_cores, 2),
        run.curve,
        date,
        machine["cpu"],
        machine["versions"],
        dict(record or {}),
    )


def keep(suite: str, algorithm: str, result: Result, folder: Path = RESULTS) -> Scored:
    """Store a run, in place of an earlier run of its setting and seed, and score the environment again."""
    path = folder / f"{suite}_{algorithm}.jsonl"
    results = [one for one in read(path) if (one.setting, one.seed) != (result.setting, result.seed)] + [result]
    results.sort(key=lambda one: (list(SUITES[suite].environments).index(one.environment), one.setting, one.seed))
    scores = {name: _scored(suite, name, results) for name in dict.fromkeys(one.environment for one in results)}
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(path, b"".join(msgspec.json.encode(one) + b"\n" for one in [*results, *scores.values()]), durable=False)
    write_bytes(folder / "README.md", page(folder).encode(), durable=False)
    return scores[result.environment]


def read(path: Path) -> list[Result]:
    """The runs in a file; none if it is not there."""
    return [msgspec.json.decode(line, type=Result) for line in _lines(path) if b'"seed"' in line]


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _scored(suite: str, name: str, results: Iterable[Result]) -> Scored:
    mine = [one for one in results if one.environment == name]
    if suite == skills.NAME:
        seeds = {one.seed for one in mine}
        value = fmean(
            skills.score(name, {one.setting: one.record for one in mine if one.seed == seed}) for seed in seeds
        )
    elif suite == "popgym":
        value = fmean(max(value for _, value in one.curve) for one in mine)
    else:
        value = fmean(fmean(value for _, value in one.curve[-3:]) for one in mine)
    return Scored(name, value, len(mine), max(one.env_steps for one in mine))


def page(folder: Path = RESULTS) -> str:
    """The tables of all suites that have stored runs."""
    found: list[str] = []
    for name, suite in SUITES.items():
        stored = {algorithm: _scores(folder / f"{name}_{algorithm}.jsonl") for algorithm in suite.algorithms}
        if any(stored.values()):
            found.append(_table(name, suite, {algorithm: one for algorithm, one in stored.items() if one}))
    return "\n".join([_HEAD, *found])


def _scores(path: Path) -> dict[str, Scored]:
    scores = (msgspec.json.decode(line, type=Scored) for line in _lines(path) if b'"scored"' in line)
    return {one.scored: one for one in scores}


def _table(name: str, suite: Suite, stored: Mapping[str, Mapping[str, Scored]]) -> str:
    columns = ["", *stored, *suite.published]
    rows = [
        f"## {name}\n",
        f"The {suite.metric}; in brackets thousands of environment steps of the longest run, and the ",
    ]
    rows[-1] += f"number of runs. {suite.source}\n"
    rows += [_row(columns), _row(["---"] * len(columns))]
    for environment in suite.environments:
        numbers = [_number(scores.get(environment)) for scores in stored.values()]
        others = [f"{found[environment]:g}" if environment in found else "" for found in suite.published.values()]
        rows.append(_row([environment, *numbers, *others]))
    return "\n".join(rows) + "\n"


def _number(scored: Scored | None) -> str:
    return "" if scored is None else f"{scored.value:.2f} ({scored.env_steps / 1000:,.0f}k, {scored.runs})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
