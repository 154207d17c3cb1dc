"""Looks for bytes that make a decoder raise what it must not raise, hang, or take too much memory.

    python -m remuda.tests.security.fuzz [--seconds 60] [--jobs 2] [DECODER ...]

Each decoder of decoders.py gets a process of its own, in which atheris (libFuzzer) changes honest files and keeps what
reaches new code. What it finds lies in `.fuzz/<decoder>/` as a file; `--only DECODER --again FILE` gives it to the
decoder again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FINDINGS = Path(".fuzz")
MOST_RESIDENT_MIB, MOST_AT_ONCE_MIB = 2_048, 512
LONGEST_S = 20
LONGEST_INPUT_BYTES = 64 << 10


def fuzz_all(names: list[str], seconds: float, jobs: int) -> int:
    """Fuzz all of them, so many at a time; returns the exit code."""
    with ThreadPoolExecutor(jobs) as pool:
        codes = [*pool.map(lambda name: fuzz_in_process(name, seconds), names)]
    failed = [name for name, code in zip(names, codes, strict=True) if code]
    print(f"fuzzed {len(names)} decoders, found something in: {', '.join(failed) or 'none of them'}")
    return 1 if failed else 0


def fuzz_in_process(name: str, seconds: float) -> int:
    """Fuzz one decoder; returns the exit code of its process. What that says is printed at its end if it found
    something, else only the figures."""
    command = [sys.executable, "-m", __spec__.name, "--only", name, "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory(prefix="remuda-fuzz-") as folder:  # libFuzzer ends its process at once
        ended = subprocess.run(command, env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True)
    figures = re.findall(r"stat::(number_of_executed_units|peak_rss_mb): +(\d+)", ended.stdout + ended.stderr)
    print(f"{name}: {', '.join(f'{key} {value}' for key, value in figures) or 'ended early'}", flush=True)
    if ended.returncode:
        print(f"{ended.stdout}{ended.stderr}--- {name} ended with {ended.returncode} ---", flush=True)
    return ended.returncode


def fuzz_one(name: str, seconds: float) -> None:
    """In this process; ends it."""
    try:
        library: Any = importlib.import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed: it exists for Linux and some versions of Python (see `make security`)")
    with library.instrument_imports(include=["remuda"], enable_loader_override=False):
        from remuda.tests.security.decoders import DECODERS
    decoder = next(each for each in DECODERS if each.name == name)
    folder = tempfile.TemporaryDirectory(prefix="remuda-fuzz-")
    place = Path(folder.name)
    corpus, found = place / "corpus", FINDINGS / name.replace(" ", "_")
    corpus.mkdir()
    found.mkdir(parents=True, exist_ok=True)
    (corpus / "honest").write_bytes(decoder.honest(place))
    warnings.simplefilter("ignore")

    def try_one(content: bytes) -> None:
        try:
            decoder.given(place, content)
        except BaseException:
            (found / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
            raise

    options = [
        f"-max_total_time={seconds:.0f}",
        f"-rss_limit_mb={MOST_RESIDENT_MIB}",
        f"-malloc_limit_mb={MOST_AT_ONCE_MIB}",
        f"-timeout={LONGEST_S}",
        f"-max_len={LONGEST_INPUT_BYTES}",
        f"-artifact_prefix={found}/",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    library.Setup([sys.argv[0], *options, str(corpus)], try_one)
    library.Fuzz()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decoders", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1, help="decoders at the same time, each in a process of its own")
    parser.add_argument("--only")
    parser.add_argument("--again", type=Path)
    given = parser.parse_args()
    if given.only is not None and given.again is None:
        fuzz_one(given.only, given.seconds)
        return
    from remuda.tests.security.decoders import DECODERS

    if given.again is not None:
        decoder = next(each for each in DECODERS if each.name == given.only)
        with tempfile.TemporaryDirectory() as folder:
            print("taken" if decoder.given(Path(folder), given.again.read_bytes()) else "refused")
        return
    sys.exit(fuzz_all(given.decoders or [decoder.name for decoder in DECODERS], given.seconds, given.jobs))


if __name__ == "__main__":
    main()
