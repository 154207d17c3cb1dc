"""Comparison of two runs to the last bit, and a second run of a run's config in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch

from remuda.client.plots.runs import PlotError, read_progress
from remuda.collector.steps import SUFFIX, StepsError, differing_slots, read_steps, steps_taken
from remuda.config.dump import changed_settings
from remuda.config.load import LoadedConfig, load_config
from remuda.config.manifest import read_manifest
from remuda.policy.files.checkpoint_file import CheckpointError, read
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder, folder_of_policy
from remuda.training.journal import read_policies
from remuda.training.journal_database import JournalError
from remuda.wire.messages import CheckpointRecord, ExperimentStatus

_DIFFERS_ALWAYS = ("counters", "versions", "config")
"""Parts of a checkpoint with times, and with facts that are compared on their own."""
_OF_SERIAL = ("policy", "precision", "rng")
"""Parts that follow from the order of one process."""
_TIMES = ("Time",)
"""Columns of progress.txt that measure the machine."""
_NOT_COMPARED = ("name ", "exp_name ", "stop.max_wall_s ")
_MOST_NAMED = 6


@dataclass(frozen=True)
class Compared:
    """The agreement of two runs in one kind of content."""

    what: str
    equal: bool
    text: str
    """What is equal, or the first difference, for people."""
    parts_at: int | None = None
    """Environment steps at the first difference, as far as known."""
    is_result: bool = True
    """False for the conditions of a run: config, code and packages."""
    found: int = 0
    """Number of compared pieces of a result."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of two runs."""

    parts: Sequence[Compared]
    notes: Sequence[str]
    """Reasons to expect differences."""
    env_step: int
    """Environment steps up to which both runs have results."""

    @property
    def equal(self) -> bool:
        """True if all results that both runs have are equal, and there are some."""
        results = [one for one in self.parts if one.is_result]
        return all(one.equal for one in results) and any(one.found for one in results)

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        if self.equal:
            return f"Both runs agree to the last bit, up to env_step {self.env_step}."
        differing = [one for one in self.parts if one.is_result and not one.equal]
        if not differing:
            return "Nothing could be compared: the runs have no checkpoint, row or chunk in common."
        known = [one for one in differing if one.parts_at is not None]
        first = min(known, key=lambda one: one.parts_at or 0) if known else differing[0]
        at = "" if first.parts_at is None else f" at env_step {first.parts_at}"
        return f"The runs part first{at}: {first.what}: {first.text}"


def is_parallel(run_dir: Path) -> bool:
    """True for a run of several processes."""
    return any((run_dir / "log").rglob(RunFolder(run_dir).commander_tb.name))


def last_record(run_dir: Path) -> CheckpointRecord | None:
    """Return the newest checkpoint of the first policy. Raises CheckpointIndexError."""
    return CheckpointIndex(folder_of_policy(run_dir, _policies(run_dir)[0]).ckpt).last


def rerun(
    run_dir: Path,
    again: Path,
    *,
    most_env_steps: int | None = None,
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
) -> None:
    """Run the config of a run again in this process, in the new folder `again`, up to the end of the first run, or up
    to `most_env_steps`. Raises the errors of `remuda.client.running.train`."""
    from remuda.client import running
    from remuda.client.beginning import ResolvedRun
    from remuda.worker.shutdown_guard import ShutdownGuard

    loaded = load_config(RunFolder(run_dir).config_json)
    stop, last = loaded.config.stop, last_record(run_dir)
    if most_env_steps is None and last is not None and not _ended_itself(loaded, last):
        most_env_steps = last.env_step
    config = loaded.config.model_copy(update={"stop": stop.model_copy(update={"max_wall_s": None})})

    def progressed(status: ExperimentStatus) -> None:
        if most_env_steps is not None and status.env_step >= most_env_steps:
            guard.end(f"env_step {most_env_steps} is reached")
        on_progress(status)

    run = ResolvedRun(replace(loaded, config=config), again.absolute())
    with ShutdownGuard(grace_s=running.TRAIN_GRACE_S) as guard:
        running.train(run, on_progress=progressed, stop=guard)


def _ended_itself(loaded: LoadedConfig, last: CheckpointRecord) -> bool:
    """True if the run ended by a condition of its config that ends a second run at the same moment."""
    stop = loaded.config.stop
    bounds = ((last.env_step, stop.max_env_steps), (last.train_iter, stop.max_train_iters))
    reached = any(bound is not None and value >= bound for value, bound in bounds)
    return reached or (stop.stop_value is not None and last.reward is not None and last.reward >= stop.stop_value)


def compare(first: Path, second: Path) -> Agreement:
    """Compare two run folders. Raises CheckpointIndexError, and ConfigError."""
    policies = _policies(first)
    pairs = [(folder_of_policy(first, name), folder_of_policy(second, name)) for name in policies]
    results = [
        compared
        for name, (one, other) in zip(policies, pairs, strict=True)
        for compared in (_named(_checkpoints(one, other), name), _named(_metrics(one, other), name))
    ]
    parts = [_config(first, second), *_conditions(first, second), *results]
    parts += [_experience(first, second), _steps(first, second)]
    ends = [CheckpointIndex(one.ckpt).last for one in pairs[0]]
    return Agreement(parts, _notes(first, second), min(0 if last is None else last.env_step for last in ends))


def _policies(run_dir: Path) -> list[str]:
    config = load_config(RunFolder(run_dir).config_json, import_algorithm=False, masks=True).config
    return sorted(config.policies) or [""]


def _named(compared: Compared, policy: str) -> Compared:
    return replace(compared, what=f"{compared.what} of {policy}") if policy else compared


def _notes(first: Path, second: Path) -> list[str]:
    notes = [
        f"{run} was run by several processes, whose order no second run repeats: results part once collectors act by a "
        "published policy. Equal are at most the initial weights and the first steps."
        for run in (first, second)
        if is_parallel(run)
    ]
    notes += [
        f"{run} was resumed: new episodes began there, which a run without a break does not have."
        for run in (first, second)
        if len(read_manifest(run)) > 1
    ]
    return notes


# --- the conditions -------------------------------------------------------------------------------------------------
def _config(first: Path, second: Path) -> Compared:
    now = load_config(RunFolder(second).config_json, import_algorithm=False, masks=True).config
    changed = [line for line in changed_settings(first, now) if not line.startswith(_NOT_COMPARED)]
    return _condition("config", changed, "every setting")


def _conditions(first: Path, second: Path) -> list[Compared]:
    known = read_manifest(first), read_manifest(second)
    if not known[0] or not known[1]:
        lacks = first if not known[0] else second
        return [Compared("code", False, f"{lacks} has no manifest.json: its code is not known", is_result=False)]
    before, now = known[0][-1], known[1][-1]
    code: list[str] = []
    if before.code_sha256 != now.code_sha256:
        code.append(
            f"remuda {now.version} ({now.code_sha256[:12]}) and was {before.version} ({before.code_sha256[:12]})"
        )
    code += _changes(before.own_code, now.own_code, lambda sha256: sha256[:12])
    packages = [
        *_changes({"python": before.python, "machine": before.machine}, {"python": now.python, "machine": now.machine})
    ]
    packages += _changes(before.packages, now.packages)
    return [
        _condition("code", code, f"remuda {now.version} ({now.code_sha256[:12]})"),
        _condition("packages", packages, f"{len(now.packages)} packages, python {now.python}, {now.machine}"),
    ]


def _changes(
    before: Mapping[str, str], now: Mapping[str, str], shown: Callable[[str], str] = lambda text: text
) -> list[str]:
    return [
        f"{name} is {shown(now.get(name, 'missing'))} and was {shown(before.get(name, 'missing'))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def _condition(what: str, changed: Sequence[str], content: str) -> Compared:
    if not changed:
        return Compared(what, True, content, is_result=False)
    more = f"; and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    return Compared(what, False, "; ".join(changed[:_MOST_NAMED]) + more, is_result=False)


# --- the results ----------------------------------------------------------------------------------------------------
def weights_sha256(path: Path) -> Mapping[str, str]:
    """Return a hash of the bits of each part of a checkpoint, except its times. Raises CheckpointError."""
    content = read(path)
    hashes: dict[str, str] = {}
    for part in sorted(content.keys() - set(_DIFFERS_ALWAYS)):
        total = hashlib.sha256()
        for piece in _bits_of(content[part]):
            total.update(piece)
        hashes[part] = total.hexdigest()
    return hashes


def _bits_of(value: object, name: str = "") -> Iterator[bytes]:
    """Yield the bits of a value of a checkpoint, with the names of its parts."""
    if isinstance(value, torch.Tensor):
        yield f"{name} {value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for key, inside in sorted(cast("Mapping[object, object]", value).items(), key=lambda item: str(item[0])):
            yield from _bits_of(inside, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for index, inside in enumerate(cast("Sequence[object]", value)):
            yield from _bits_of(inside, f"{name}.{index}")
    else:
        yield f"{name} {value!r}".encode()


def _checkpoints(first: RunFolder, second: RunFolder) -> Compared:
    others = {record.train_iter: record for record in CheckpointIndex(second.ckpt).records}
    records = [record for record in CheckpointIndex(first.ckpt).records if record.train_iter in others]
    parallel = is_parallel(first.root) or is_parallel(second.root)
    newest, ignored = "", set[str](_OF_SERIAL if parallel else ())
    for number, record in enumerate(records):
        other = others[record.train_iter]
        try:
            hashes = [weights_sha256(run.ckpt / one.file) for run, one in ((first, record), (second, other))]
        except CheckpointError as error:
            return Compared("checkpoints", False, str(error), record.env_step)
        names = (hashes[0].keys() | hashes[1].keys()) - ignored
        parts = [part for part in names if hashes[0].get(part) != hashes[1].get(part)]
        if parts or record.env_step != other.env_step:
            differing = ", ".join(sorted(parts)) or f"env_step {record.env_step} and {other.env_step}"
            text = f"{number} of {len(records)} equal; {record.file} differs in {differing}"
            return Compared("checkpoints", False, text, record.env_step, found=len(records))
        newest = f", the newest with weights {hashes[0].get('model', '')[:12]}"
    content = "all weights" if parallel else "all tensors and random states"
    return Compared("checkpoints", True, f"{len(records)} with {content}{newest}", found=len(records))


def _metrics(first: RunFolder, second: RunFolder) -> Compared:
    try:
        before, now = read_progress(first.progress), read_progress(second.progress)
        steps, others = before["TotalEnvInteracts"], now["TotalEnvInteracts"]
    except (PlotError, KeyError) as error:
        return Compared("metrics", False, f"no rows to compare: {error}")
    count = min(len(steps), len(others))
    if count and (len(steps), steps[count - 1]) != (len(others), others[count - 1]):
        count -= 1  # the last row of the run that ended first is at its end, maybe inside of an epoch
    names = [name for name in before if name in now and name not in _TIMES]
    differs = np.array([~_same(before[name][:count], now[name][:count]) for name in names]).reshape(len(names), count)
    if differs.any():
        row = int(np.flatnonzero(differs.any(axis=0))[0])
        name = names[int(np.flatnonzero(differs[:, row])[0])]
        text = f"{row} of {count} rows equal; "
        text += f"{name} is {float(now[name][row])!r} and was {float(before[name][row])!r}"
        return Compared("metrics", False, text, int(steps[row]), found=count)
    return Compared("metrics", True, f"{count} rows of progress.txt, {len(names)} columns", found=count)


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    same: np.ndarray = (one == other) | (np.isnan(one) & np.isnan(other))
    return same


def _experience(first: Path, second: Path) -> Compared:
    try:
        before, now = _chunks(first), _chunks(second)
    except JournalError as error:
        return Compared("experience", True, f"not compared: {error}")
    common = sorted(before.keys() & now.keys())
    for number, chunk in enumerate(common):
        if before[chunk] != now[chunk]:
            text = f"{number} of {len(common)} stored chunks equal; chunk {chunk[-1]} of {chunk[1]} differs"
            return Compared("experience", False, text, found=len(common))
    return Compared("experience", True, f"{len(common)} stored chunks, by their checksums", found=len(common))


def _steps(first: Path, second: Path) -> Compared:
    """Compare every collected step, by the files of steps of equal collectors and generations."""
    equal = 0
    for path in sorted(RunFolder(first).steps.glob(f"*{SUFFIX}")):
        other = RunFolder(second).steps / path.name
        if not other.is_file():
            continue
        try:
            pairs = list(zip(read_steps(path), read_steps(other), strict=False))
        except (StepsError, OSError) as error:
            return Compared("steps", False, str(error), found=equal)
        for before, now in pairs:
            slots = min(before.slots, now.slots)
            differs = [
                differing_slots(one.steps.part(0, slots), another.steps.part(0, slots)).any(axis=1)
                for one, another in zip(before.policies, now.policies, strict=True)
            ]
            wrong = np.flatnonzero(np.any(differs, axis=0))
            steps = steps_taken(before)
            if wrong.size:
                at = equal + int(steps[: wrong[0]].sum())
                return Compared("steps", False, f"{at} equal; then {path.name} differs", at, found=at + 1)
            equal += int(steps[:slots].sum())
    return Compared("steps", True, f"{equal} with actions, rewards and observations", found=equal)


def _chunks(run_dir: Path) -> dict[tuple[str, str, int, int], int]:
    """Return the checksums of the stored chunks, by policy, worker, incarnation and number. Raises JournalError."""
    return {
        (name, meta.chunk.worker, meta.chunk.incarnation, meta.chunk.sequence): meta.checksum
        for name, recovered in read_policies(RunFolder(run_dir).journal).items()
        for meta in (chunk.meta for chunk in recovered.chunks)
    }
