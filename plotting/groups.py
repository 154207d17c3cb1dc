"""Groups of runs that become one curve: by default those that differ only in the seed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from remuda.plotting.errors import PlotError
from remuda.plotting.runs import Run


@dataclass(frozen=True)
class Group:
    """Runs that are averaged, and the label of their curve."""

    label: str
    runs: tuple[Run, ...]


def by_experiment(runs: Sequence[Run]) -> list[Group]:
    """One group per experiment. Runs with the same name and different settings are different experiments, and their
    labels name these settings."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, _settings_text(run)), []).append(run)
    named: dict[str, list[Run]] = {}
    for (name, _), members in groups.items():
        named.setdefault(name, []).append(members[0])
    differing = {name: _differing(members) for name, members in named.items()}
    return [
        Group(name + _difference(members[0], differing[name]), tuple(members)) for (name, _), members in groups.items()
    ]


def by_legend(runs: Sequence[Run], legend: Sequence[str], places: int) -> list[Group]:
    """One group per given folder, with its label; folders with the same label are one group. Raises PlotError unless
    there are as many labels as folders."""
    if len(legend) != places:
        raise PlotError(f"there are {len(legend)} --legend for {places} folders: give one for each folder")
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(legend[run.place], []).append(run)
    return [Group(label, tuple(members)) for label, members in groups.items()]


def one_by_one(runs: Sequence[Run]) -> list[Group]:
    """One group per run; its label is the shortest end of its path that no other run has."""
    paths = [run.root.resolve().parts for run in runs]
    for length in range(1, max(map(len, paths), default=0) + 1):
        labels = ["/".join(parts[-length:]) for parts in paths]
        if len(set(labels)) == len(labels):
            break
    else:
        labels = []
    return [Group(label, (run,)) for label, run in zip(labels, runs, strict=True)]


def _settings_text(run: Run) -> str:
    return json.dumps(run.settings, sort_keys=True)


def _differing(runs: Sequence[Run]) -> set[str]:
    """The settings that are not the same in all of these runs, or that some of them lack."""
    first = runs[0].settings
    keys = set[str]().union(*(run.settings for run in runs))
    return {
        key for key in keys if any(key not in run.settings or run.settings[key] != first.get(key, run) for run in runs)
    }


def _difference(run: Run, differing: Collection[str]) -> str:
    """The settings in which a run differs from others with its name, for its label."""
    told = ", ".join(f"{_short(key, run)}={_text(run.settings[key])}" for key in run.settings if key in differing)
    return f" ({told})" if told else ""


def _short(key: str, run: Run) -> str:
    """The last part of a key, if no other key has the same last part; else the whole key."""
    last = key.rpartition(".")[2]
    return last if sum(one.rpartition(".")[2] == last for one in run.settings) == 1 else key


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
