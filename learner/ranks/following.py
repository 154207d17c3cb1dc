"""Ranks 1 and up: build the same algorithm as rank 0 and learn from a part of each batch."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import cast

import msgspec
import numpy as np
import torch

from remuda.config.current import Number, with_values
from remuda.config.learning import Precision
from remuda.config.schema import ExperimentConfig
from remuda.environments.make import check_environment
from remuda.learner.checkpoint import new_algorithm
from remuda.learner.ranks.group import Message, RankGroup
from remuda.learner.ranks.meeting import Lease, Meeting
from remuda.learner.ranks.parts import packed, result_columns, unpacked
from remuda.learner.settings import of_own_class
from remuda.policy.base import Algorithm
from remuda.policy.networks.flat_parameters import keep_freed_memory
from remuda.policy.networks.tensors import denormals_are_zero
from remuda.policy.ranks import RankLostError
from remuda.worker.affinity import bind_cores
from remuda.worker.serve import leaves_doubt


def serve_leases(meeting: Meeting, rank: int, *, local_rank: int) -> None:
    """Learn under one lease of rank 0 after another, until rank 0 ends. An error of the algorithm ends the lease and is
    reported to rank 0. `local_rank`, the index among the ranks of this host, assigns the host's GPUs in turn.

    Raises RankLostError if rank 0 is lost or has another key, and errors after which this process cannot be trusted.
    """
    while (lease := meeting.next_lease(rank)) is not None:
        with ExitStack() as opened:
            try:
                _follow(lease, meeting, rank, local_rank, opened)
            except RankLostError:
                if not lease.is_over:
                    raise
            except Exception as error:
                traceback.print_exc()
                sys.stderr.flush()
                lease.fail(rank, error)
                if leaves_doubt(error):
                    raise


def _follow(lease: Lease, meeting: Meeting, rank: int, local_rank: int, opened: ExitStack) -> None:
    """Learn with rank 0 until the lease ends or rank 0 is lost: both raise RankLostError. Raises the algorithm's
    errors."""
    config = lease.config
    bind_cores(config, "learner", 0)
    keep_freed_memory()
    device = device_of(config, local_rank)
    own = config.model_copy(update={"learner": config.learner.model_copy(update={"device": device})})
    algorithm = new_algorithm(own, *check_environment(config))
    own = of_own_class(own)
    lease.ready(rank)
    group = opened.enter_context(closing(joined(lease, meeting, rank)))
    group.use_gpus(device)
    load_saved(group.expect(0, Message.STATE).tobytes(), algorithm)
    algorithm.ranks = group
    while True:
        kind, body = group.receive(0, _patience_s(config))
        if kind == Message.BATCH:
            with denormals_are_zero():
                result = algorithm.learn(unpacked(body))
            group.send(0, Message.RESULT, packed(result_columns(result)))
        elif kind == Message.ADJUST:
            algorithm.adjust(with_values(own, msgspec.json.decode(body.data, type=dict[str, Number])))


def joined(lease: Lease, meeting: Meeting, rank: int) -> RankGroup:
    """This rank's part of the group of a lease. Raises RankLostError."""
    config = lease.config
    return RankGroup(lease.store, rank, config.learner.ranks, timeout_s=config.limits.rank_s, address=meeting.address)


def device_of(config: ExperimentConfig, local_rank: int) -> str:
    """Return the device of a rank. `cuda` assigns the GPUs of a host in turn; other names apply to all ranks."""
    device = config.learner.device
    if device != "cuda" or not torch.cuda.device_count():
        return device
    return f"cuda:{local_rank % torch.cuda.device_count()}"


def saved(algorithm: Algorithm) -> bytes:
    """Encode the common state at the start of a lease: algorithm, precision, and torch's random generator."""
    file = io.BytesIO()
    precision = None if algorithm.products is None else algorithm.products.precision
    torch.save({"algorithm": algorithm.state(), "generator": torch.get_rng_state(), "precision": precision}, file)
    return file.getvalue()


def load_saved(body: bytes, algorithm: Algorithm) -> None:
    """Load the state encoded by `saved`. Raises StateMismatchError."""
    state = cast("Mapping[str, object]", torch.load(io.BytesIO(body), map_location="cpu", weights_only=True))
    algorithm.load_state(cast("Mapping[str, object]", state["algorithm"]))
    torch.set_rng_state(cast("torch.Tensor", state["generator"]))
    if algorithm.products is not None:
        algorithm.products.precision = cast("Precision", state["precision"])


def as_body(content: bytes) -> np.ndarray:
    """Copy bytes into a writable message body."""
    return np.frombuffer(bytearray(content), np.uint8)


def _patience_s(config: ExperimentConfig) -> float:
    """Return the longest time in seconds that rank 0 may be busy with other work; after that time rank 0 has failed."""
    return max(config.limits.prepare_s, config.limits.save_s) + config.limits.rank_s
