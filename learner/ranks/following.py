"""What the ranks besides rank 0 do under a lease: build the same algorithm, and learn from their part of each batch."""

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
from remuda.environments.check import check_environment
from remuda.learner.ranks.group import Message, RankGroup
from remuda.learner.ranks.meeting import Lease, Meeting
from remuda.learner.ranks.parts import packed, told, unpacked
from remuda.learner.settings import of_own_class
from remuda.learner.start import new_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.networks.lasting_memory import keep_freed_memory
from remuda.policy.networks.tensors import denormals_are_zero
from remuda.policy.ranks import RankLostError
from remuda.worker.affinity import settle
from remuda.worker.serve import leaves_doubt


def serve_leases(meeting: Meeting, rank: int, *, local_rank: int) -> None:
    """Follow rank 0 from lease to lease, until it has no more. An error of the algorithm ends its lease, and rank 0 is
    told of it. `local_rank` counts the ranks of one host, which takes its GPUs in turn.

    Raises RankLostError where rank 0 is lost or has another key, and what leaves this process in doubt.
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
    """Learn with rank 0 until it ends the lease, or is lost: both raise RankLostError. Raises what the algorithm
    raises."""
    config = lease.config
    settle(config, "learner", 0)
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
            group.send(0, Message.RESULT, packed(told(result)))
        elif kind == Message.ADJUST:
            algorithm.adjust(with_values(own, msgspec.json.decode(body.data, type=dict[str, Number])))


def joined(lease: Lease, meeting: Meeting, rank: int) -> RankGroup:
    """This rank's part of the group of a lease. Raises RankLostError."""
    config = lease.config
    return RankGroup(lease.store, rank, config.learner.ranks, timeout_s=config.limits.rank_s, address=meeting.address)


def device_of(config: ExperimentConfig, local_rank: int) -> str:
    """The device of a rank. `cuda` is a GPU of its host for each, in turn; a name of one device is the same for all."""
    device = config.learner.device
    if device != "cuda" or not torch.cuda.device_count():
        return device
    return f"cuda:{local_rank % torch.cuda.device_count()}"


def saved(algorithm: Algorithm) -> bytes:
    """What all ranks must have in common when they begin: the algorithm's state and precision, and the state of torch's
    generator."""
    file = io.BytesIO()
    precision = None if algorithm.products is None else algorithm.products.precision
    torch.save({"algorithm": algorithm.state(), "generator": torch.get_rng_state(), "precision": precision}, file)
    return file.getvalue()


def load_saved(body: bytes, algorithm: Algorithm) -> None:
    """Begin with what `saved` made. Raises StateMismatchError."""
    state = cast("Mapping[str, object]", torch.load(io.BytesIO(body), map_location="cpu", weights_only=True))
    algorithm.load_state(cast("Mapping[str, object]", state["algorithm"]))
    torch.set_rng_state(cast("torch.Tensor", state["generator"]))
    if algorithm.products is not None:
        algorithm.products.precision = cast("Precision", state["precision"])


def as_body(content: bytes) -> np.ndarray:
    """Bytes as the body of a message, which may be written to."""
    return np.frombuffer(bytearray(content), np.uint8)


def _patience_s(config: ExperimentConfig) -> float:
    """How long rank 0 may be busy with something else, in seconds; then it has failed by its own limits."""
    return max(config.limits.prepare_s, config.limits.save_s) + config.limits.rank_s
