"""Run algorithms on a suite of others, and write the table; each run is stored as soon as it is over."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remuda.benchmarks.learning.runs import ours
from remuda.benchmarks.learning.tasks import Task
from remuda.benchmarks.suites import skills
from remuda.benchmarks.suites.stored import RESULTS, keep, page, result_of
from remuda.benchmarks.suites.suites import SUITES


class Options(argparse.Namespace):
    """The command line."""

    suite: str | None
    algorithms: list[str]
    environments: list[str]
    settings: list[int]
    all_settings: bool
    seeds: list[int]
    max_env_steps: int | None
    folder: Path
    table: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where all runs ended well, and 1 where one did not."""
    options = _parse(arguments)
    if options.table or options.suite is None:
        (options.folder / "README.md").write_text(page(options.folder))
        return 0
    failed = 0
    suite = SUITES[options.suite]
    for environment in options.environments or suite.environments:
        for setting in _settings(options, environment):
            for algorithm in options.algorithms or suite.algorithms:
                for seed in options.seeds:
                    failed += not _run(options, algorithm, environment, setting, seed)
    return 1 if failed else 0


def _settings(options: Options, environment: str) -> list[str]:
    if options.suite != skills.NAME:
        return [SUITES[options.suite or ""].environments[environment]]
    return skills.ids(environment, None if options.all_settings else options.settings)


def _run(options: Options, algorithm: str, environment: str, setting: str, seed: int) -> bool:
    name, suite = options.suite or "", SUITES[options.suite or ""]
    of_bsuite = name == skills.NAME
    steps = min(skills.env_steps(setting) if of_bsuite else suite.max_env_steps, options.max_env_steps or sys.maxsize)
    with tempfile.TemporaryDirectory() as folder:
        own = skills.arguments(setting, Path(folder)) if of_bsuite else ()
        task = Task(
            algorithm,
            suite.environments[environment],
            None,
            steps,
            seeds=1,
            interval_env_steps=max(1, steps // suite.evaluations),
            episodes=suite.episodes,
            deadline_s=86_400.0,
            overrides=(*suite.settings, *suite.settings_of.get(algorithm, ()), *own),
        )
        try:
            run = ours(task, seed)
        except RuntimeError as error:
            print(f"{algorithm} {setting}, seed {seed}: {error}", file=sys.stderr, flush=True)
            return False
        record = skills.recorded(Path(folder)) if of_bsuite else {}
    scored = keep(name, algorithm, result_of(environment, setting, run, record), options.folder)
    print(
        f"{algorithm} {setting}, seed {seed}: {scored.value:.3f} in {run.env_steps} steps, {run.wall_s:.0f} s",
        flush=True,
    )
    return True


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m remuda.benchmarks.suites", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=SUITES, help="without it, the table alone is written")
    parser.add_argument("--algorithms", nargs="+", default=[], help="default: all that fit")
    parser.add_argument("--environments", nargs="+", default=[], help="default: all of the suite")
    parser.add_argument("--settings", nargs="+", type=int, default=[0], help="of each family of bsuite (default: 0)")
    parser.add_argument("--all-settings", action="store_true", help="of each family of bsuite, 400 in all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--max-env-steps", type=int, help="for shorter runs than the suite asks for")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="where runs are kept (default: with the stored ones)"
    )
    parser.add_argument("--table", action="store_true", help="write the table again, and run nothing")
    options = parser.parse_args(arguments, namespace=Options())
    known = tuple(SUITES[options.suite].environments) if options.suite else ()
    if unknown := sorted(set(options.environments) - set(known)):
        parser.error(f"there is no environment {', '.join(unknown)}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
