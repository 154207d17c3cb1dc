"""DI-engine, parallel mode: DQN on CartPole-v0 with its own config, seconds from the command to the end of the run."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path

import psutil

CONFIG = "dizoo.classic_control.cartpole.config.parallel.cartpole_dqn_config"
CAP_S = 150.0
"""A run that is not over by then counts as this long, which flatters it."""
POLL_S = 0.25


def main() -> None:
    """Run the pipeline in a process group of its own and print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=float, default=CAP_S)
    parser.add_argument("--inside", action="store_true", help="run the pipeline here; for this script itself")
    options = parser.parse_args()
    if options.inside:
        _pipeline(options.seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        begin_s = time.monotonic()
        command = [sys.executable, os.path.abspath(__file__), "--inside", "--seed", str(options.seed)]
        with open(Path(folder) / "output.txt", "wb") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True)
            peak_bytes = _watch(process, begin_s + options.cap)
        elapsed_s = time.monotonic() - begin_s
        reached = process.poll() == 0 and b"converged" in (Path(folder) / "output.txt").read_bytes()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        facts = {
            "value": elapsed_s if reached else options.cap,
            "reached": reached,
            "ended_early": elapsed_s < options.cap - 1 and not reached,
            "peak_rss_bytes": peak_bytes,
            **_progress(Path(folder), elapsed_s),
            "seed": options.seed,
        }
        if facts["ended_early"]:
            sys.stderr.write((Path(folder) / "output.txt").read_text(errors="replace")[-3000:])
            sys.exit("the pipeline ended by itself before its stop value")
        time.sleep(POLL_S)  # for the last files of those killed
    print(json.dumps(facts))


def _pipeline(seed: int) -> None:
    from ding.entry.parallel_entry import parallel_pipeline

    module = importlib.import_module(CONFIG)
    parallel_pipeline(deepcopy((module.main_config, module.create_config, module.system_config)), seed=seed)


def _watch(process: subprocess.Popen[bytes], give_up_s: float) -> int:
    """Wait for the end; return the largest sum of resident memory of all its processes, bytes."""
    peak, root = 0, psutil.Process(process.pid)
    while process.poll() is None and time.monotonic() < give_up_s:
        total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for member in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += member.memory_info().rss
        peak = max(peak, total)
        time.sleep(POLL_S)
    return peak


def _progress(folder: Path, elapsed_s: float) -> dict[str, float | list[float]]:
    """Read how far it came from the commander's and the learner's logs."""
    logs = {path.name: path.read_text(errors="replace") for path in folder.glob("*/log/**/*.txt")}
    steps = sum(map(int, re.findall(r"^step_count: (\d+)", logs.get("commander_collector_logger.txt", ""), re.M)))
    evaluations = re.findall(r"^reward_mean: ([\d.]+)", logs.get("commander_evaluator_logger.txt", ""), re.M)
    iterations = [int(text) for text in re.findall(r"Training Iteration (\d+)", logs.get("learner_logger.txt", ""))]
    iterations += [int(path.name.split("_")[1].split(".")[0]) for path in folder.glob("*/ckpt/iteration_*")]
    updates = max(iterations, default=0)
    return {
        "env_steps": steps,
        "updates_at_least": updates,
        "env_steps_per_s": steps / elapsed_s,
        "updates_per_s": updates / elapsed_s,
        "evaluations": [float(mean) for mean in evaluations],
    }


if __name__ == "__main__":
    main()
