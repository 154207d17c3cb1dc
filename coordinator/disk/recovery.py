"""Recovery of a run from journal, payload files and policy file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from remuda.buffer.chunk import ChunkError, parse_name, read_meta
from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.policy.files.policy_file import PolicyFileError, read_ref
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.training.journal_entry import Recovered, ResumePoint
from remuda.training.recovery import resume_point, task_at
from remuda.training.replay.ledger import Ledger
from remuda.training.run_snapshot import RunSnapshot
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters, PolicyRef


def counters_after(record: CheckpointRecord | None, recovered: Recovered | None) -> Counters | None:
    """Return the start of a resumed run: counted steps stay counted, updates after the checkpoint are lost."""
    if record is None:
        return None
    if recovered is None:
        return record.counters
    known = recovered.snapshot.counters
    return Counters(known.env_step, record.train_iter, known.episode, known.policy_version, known.wall_s)


def curves_hold_until(policies: Sequence[RunSnapshot], index: int) -> Counters:
    """Return the counters up to which the curves of a policy are valid after the death of the coordinator.

    The progress of a working learner is journaled once a second, so the curves are not cut. A learner in preparation
    has shown nothing, but points after the start may still exist: the coordinator may have died before setting the
    curves back.
    """
    first, own = (snapshot.experiment.leases.leases for snapshot in (policies[0], policies[index]))
    leases = [lease for lease in first if lease.index == index]
    leases += own if index else []  # in journals of earlier versions of Remuda
    begins = any(lease.holder.role == "learner" and not lease.over and not lease.ready for lease in leases)
    known = policies[index].counters
    return known if begins else structs.replace(known, train_iter=sys.maxsize)


def found_in(recovered: Recovered, folder: RunFolder) -> Recovered:
    """Return the recovered run of a folder, which may have been at another place when the journal was written."""
    before = recovered.snapshot.identity
    policy_file = folder.policy / os.path.basename(before.policy_file)
    identity = structs.replace(before, run_dir=str(folder.root), policy_file=str(policy_file))
    return replace(recovered, snapshot=structs.replace(recovered.snapshot, identity=identity))


def with_payloads(recovered: Recovered, data: Path) -> Recovered:
    """Return the recovered run without the chunks whose payload file is gone."""
    files = set(os.listdir(data)) if data.is_dir() else set[str]()
    return replace(recovered, chunks=tuple(chunk for chunk in recovered.chunks if chunk.meta.file in files))


def payload_files(recovered: Recovered | None) -> frozenset[str]:
    """Return the payload files of live chunks and of their reanalyses."""
    if recovered is None:
        return frozenset()
    again = recovered.snapshot.experiment.reanalysis.newest
    chunks = {chunk.meta.file for chunk in recovered.chunks}
    return frozenset(chunks | {row.reanalysis.meta.file for row in again})


def uncounted_payloads(recovered: Recovered, data: Path) -> tuple[ChunkMeta, ...]:
    """Return written but uncounted payloads, by header: the workers may have ended while no coordinator was running.
    Payloads of forgotten leases are left out, since the counts may include them."""
    counted = Ledger()
    counted.restore(recovered.snapshot.experiment.replay.ledger)
    live = payload_files(recovered)
    found: list[ChunkMeta] = []
    for name in sorted(os.listdir(data)):
        with contextlib.suppress(ChunkError, ValueError):  # no payload, or a damaged one: swept
            if name not in live and counted.lacks(parse_name(name)):
                found.append(read_meta(data / name))
    return tuple(sorted(found, key=lambda meta: meta.chunk))


def resumed_at(
    checkpoints: CheckpointIndex,
    log: Logbook,
    counters: Counters | None,
    policy_file: Path,
    *,
    config: ExperimentConfig,
    recovered: Recovered | None,
) -> ResumePoint | None:
    """Return the resume point: the newest checkpoint with these counters; see resume_point."""
    if counters is None or checkpoints.last is None:
        return None
    published = _published(policy_file)  # maybe by a learner that came after the one of the checkpoint
    return resume_point(
        checkpoints.last, counters, published, checkpoints, log, config=config, state=task_at(recovered)
    )


def _published(policy_file: Path) -> PolicyRef:
    try:
        return read_ref(policy_file) or PolicyRef()
    except PolicyFileError:  # damaged: replaced by the next publication
        return PolicyRef()


def policy_file_of(folder: RunFolder, experiment: str) -> Path:
    """Return the policy file from before a resume, if any: its epoch keeps the earlier learner from publishing."""
    known = sorted(path for path in folder.policy.glob("policy_*") if path.suffix != ".lock")
    return known[0] if known else folder.policy_file(experiment, 0)
