"""The manifest of a run: code, packages and machine of each start, for a later comparison."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import cast

import msgspec

from remuda.config.schema import ExperimentConfig
from remuda.storage.atomic import write_bytes
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import read_bounded

_MOST_BYTES = 16 << 20
_NOT_OURS = {"benchmarks", "docs", "examples", "tests"}
"""Folders beside the packages, whose code takes no part in a run."""


@dataclass(frozen=True)
class Begun:
    """A start of a run, by the process that has made the run folder."""

    time: str
    """ISO 8601, UTC."""
    version: str
    """Of Remuda."""
    code_sha256: str
    """Of all modules of Remuda, by path and content."""
    python: str
    machine: str
    """System and processor."""
    packages: dict[str, str]
    """Version of each installed package."""
    own_code: dict[str, str] = field(default_factory=dict[str, str])
    """SHA-256 of each module of the user that the config names, in the config's folder."""


class _Manifest(msgspec.Struct):
    format: int
    starts: list[Begun]


def write_manifest(run_dir: Path, config: ExperimentConfig) -> None:
    """Add this start to manifest.json. An unreadable manifest is replaced. Raises OSError."""
    path = RunFolder(run_dir).manifest
    starts = [*read_manifest(run_dir), begun_here(config)]
    text = json.dumps({"format": 1, "starts": [msgspec.to_builtins(one) for one in starts]}, indent=1)
    write_bytes(path, f"{text}\n".encode(), durable=False)


def read_manifest(run_dir: Path) -> list[Begun]:
    """Return all starts of a run, the oldest first; empty without a readable manifest."""
    try:
        content = read_bounded(RunFolder(run_dir).manifest, most_bytes=_MOST_BYTES)
        return msgspec.json.decode(content, type=_Manifest).starts
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def begun_here(config: ExperimentConfig) -> Begun:
    """Describe a start of this config by this process."""
    packages = _packages()
    return Begun(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        version=packages.get("remuda", "unknown"),
        code_sha256=_code_sha256(),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        packages=packages,
        own_code=_own_code(config),
    )


@cache
def _code_sha256() -> str:
    root, total = Path(__file__).resolve().parents[1], hashlib.sha256()
    packages = [one for one in root.iterdir() if (one / "__init__.py").is_file() and one.name not in _NOT_OURS]
    for path in sorted(path for package in packages for path in package.rglob("*.py")):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _packages() -> dict[str, str]:
    """Return the installed packages by the names of their metadata folders: opening all metadata takes longer."""
    found: dict[str, str] = {}
    for folder in reversed(sys.path):  # the first on the path is imported
        for path in Path(folder).glob("*.dist-info") if folder else ():
            name, _, version = path.name.removesuffix(".dist-info").partition("-")
            found[name.lower().replace("_", "-")] = version
    return dict(sorted(found.items()))


def _own_code(config: ExperimentConfig) -> dict[str, str]:
    """Return the hash of each named module in the config's folder, by the module's name."""
    hashes: dict[str, str] = {}
    for module in _named_modules(config):
        base = Path(cast("str", config.source_dir), *module.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                hashes[module] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def _named_modules(config: ExperimentConfig) -> Iterator[str]:
    if config.source_dir is not None:
        evaluated = config.evaluator.env
        references = [config.env.make, None if evaluated is None else evaluated.make, *config.user_code.values()]
        references += [callback.make for callback in config.callbacks]
        for reference in filter(None, references):
            if ":" in reference:
                yield reference.partition(":")[0]
