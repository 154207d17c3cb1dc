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


class Line(msgspec.Struct, frozen=True):
    """The last JSON line that a peer's script prints; it may hold more."""

    value: float
    env_steps: int = 0
    """That it has trained on, where the script says it."""
    reached: bool = True
    """False where the run was cut off before it reached its value."""


def peer(name: str, script: str, *args: str, deadline_s: float = 600.0, root: Path = ROOT) -> Measure:
    """Return a measure that runs `benchmarks/peers/<name>/<script>.py` in the peer's environment.

    It returns `value` of the last JSON line on stdout. It raises ReferenceFailedError when the environment is not
    there, the script fails, prints no such line, or is not done after `deadline_s`.
    """
    return functools.partial(_value, name, script, args, deadline_s, root)


def printed(name: str, script: str, *args: str, deadline_s: float, root: Path = ROOT) -> Line:
    """Run the script as `peer` does, once, and return the whole line. Raises ReferenceFailedError."""
    python = root / ".venv-peers" / name / "bin" / "python"
    if not python.exists():
        raise ReferenceFailedError(f"it is not installed: `make bench-peers` makes .venv-peers/{name}")
    file = f"benchmarks/peers/{name}/{script}.py"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = process.run([str(python), str(root / file), *args], deadline_s=deadline_s, environment=environment)
    if done.status is None:
        raise ReferenceFailedError(f"{file} was not done after {deadline_s:g} s and was stopped")
    if done.status:
        raise ReferenceFailedError(f"{file} ended with status {done.status}: {_last_line(done.errors)}")
    return _line(file, done.output)


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


def _value(name: str, script: str, args: tuple[str, ...], deadline_s: float, root: Path) -> float:
    return printed(name, script, *args, deadline_s=deadline_s, root=root).value


def _line(script: str, output: str) -> Line:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                found = msgspec.json.decode(line, type=Line)
            except msgspec.MsgspecError as error:
                raise ReferenceFailedError(f"{script} printed {line!r}: {error}") from error
            if math.isfinite(found.value):
                return found
    raise ReferenceFailedError(f'{script} printed no line like {{"value": 1.5}}: {output[-200:]!r}')


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
