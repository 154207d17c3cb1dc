"""Peers: other systems, each in an environment of its own, run as processes that print one number."""

from __future__ import annotations

import functools
import math
import os
import re
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from remuda.benchmarks import process
from remuda.benchmarks.figure import Measure, ReferenceFailedError

ROOT = Path(__file__).resolve().parents[2]

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==")


class _Line(msgspec.Struct):
    """The last JSON line that a peer's script prints; it may hold more."""

    value: float


def peer(name: str, script: str, *args: str, deadline_s: float = 600.0, root: Path = ROOT) -> Measure:
    """Return a measure that runs `benchmarks/peers/<name>/<script>.py` in the peer's environment.

    It returns `value` of the last JSON line on stdout. It raises ReferenceFailedError when the environment is not
    there, the script fails, prints no such line, or is not done after `deadline_s`.
    """
    return functools.partial(_measure, name, [f"benchmarks/peers/{name}/{script}.py", *args], deadline_s, root)


def versions(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return of each installed peer the versions of what it pins: itself and what its speed depends on."""
    found: dict[str, dict[str, str]] = {}
    for folder in sorted((root / "benchmarks" / "peers").iterdir()):
        lines = [line for file in folder.glob("*.txt") for line in file.read_text(encoding="utf-8").splitlines()]
        pinned = {_normal(match[1]) for line in lines if (match := _PINNED.match(line))}
        packages = [str(path) for path in (root / ".venv-peers" / folder.name).glob("lib/python*/site-packages")]
        installed = {_normal(package.name): package.version for package in distributions(path=packages)}
        if here := sorted(installed.keys() & pinned):
            found[folder.name] = {package: installed[package] for package in here}
    return found


def _measure(name: str, command: list[str], deadline_s: float, root: Path) -> float:
    python = root / ".venv-peers" / name / "bin" / "python"
    if not python.exists():
        raise ReferenceFailedError(f"it is not installed: `make bench-peers` makes .venv-peers/{name}")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = process.run(
        [str(python), str(root / command[0]), *command[1:]], deadline_s=deadline_s, environment=environment
    )
    if done.status is None:
        raise ReferenceFailedError(f"{command[0]} was not done after {deadline_s:g} s and was stopped")
    if done.status:
        raise ReferenceFailedError(f"{command[0]} ended with status {done.status}: {_last_line(done.errors)}")
    return _value(command[0], done.output)


def _value(script: str, output: str) -> float:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                value = msgspec.json.decode(line, type=_Line).value
            except msgspec.MsgspecError as error:
                raise ReferenceFailedError(f"{script} printed {line!r}: {error}") from error
            if math.isfinite(value):
                return value
    raise ReferenceFailedError(f'{script} printed no line like {{"value": 1.5}}: {output[-200:]!r}')


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
