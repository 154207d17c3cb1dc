"""What the ranks besides rank 0 do under a lease: build the same algorithm, and learn from their part of each batch."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Mapping
from typing import cast

import msgspec
import torch

from remuda.config.current import Number, with_values
from remuda.config.learning import Precision
from remuda.config.schema import ExperimentConfig
from remuda.environments.check import check_environment
from remuda.learner.ranks.group import RankGroup
from remuda.learner.ranks.line import Body, LeaseOverError, Line, Message, Part
from remuda.learner.ranks.parts import packed, told, unpacked
from remuda.learner.settings import of_own_class
from remuda.learner.start import new_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.networks.lasting_memory import keep_freed_memory
from remuda.policy.networks.tensors import denormals_are_zero
from remuda.policy.ranks import RankLostError
from remuda.worker.affinity import settle
from remuda.worker.serve import leaves_doubt

SIGN_OF_LIFE_S = 10.0
"""How often rank 0 says that it is there, while there are no batches."""
_LENGTH_BYTES = 8


class Here(msgspec.Struct, frozen=True):
    """The body of HELLO: which process this is."""

    rank: int
    host: str
    pid: int

    def __str__(self) -> str:
        """For people."""
        return f"learner rank {self.rank} (pid {self.pid}{f' on {self.host}' if self.host else ''})"


def beginning(config: ExperimentConfig, algorithm: Algorithm) -> list[Part]:
    """The body of BEGIN: the config, and what `saved` makes."""
    text = config.model_dump_json().encode()
    return [len(text).to_bytes(_LENGTH_BYTES, "little"), text, saved(algorithm)]


def serve_leases(line: Line, here: Here, *, local_rank: int) -> None:
    """Follow rank 0 from lease to lease, until it has no more. What an algorithm raises ends its lease, and is told.
    `local_rank` counts the ranks of one host, which takes its GPUs in turn.

    Raises RankLostError when rank 0 is lost, and what leaves this process in doubt.
    """
    while True:
        line.send(Message.HELLO, msgspec.json.encode(here))
        kind, body = line.skip_to(Message.BEGIN, Message.LEAVE, timeout_s=None)
        if kind == Message.LEAVE:
            return
        try:
            follow(line, body, here.rank, local_rank)
        except LeaseOverError:
            pass
        except RankLostError:
            raise
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            line.send(Message.FAILED, f"{type(error).__name__}: {error}".encode(errors="replace"))
            if leaves_doubt(error):
                raise


def follow(line: Line, begin: Body, rank: int, local_rank: int) -> None:
    """Learn with rank 0 under one lease. Raises LeaseOverError at its end, RankLostError, and what the algorithm
    raises."""
    config, state = _begun(begin)
    line.timeout_s = config.limits.rank_s
    settle(config, "learner", 0)
    keep_freed_memory()
    own = config.model_copy(
        update={"learner": config.learner.model_copy(update={"device": device_of(config, local_rank)})}
    )
    algorithm = new_algorithm(own, *check_environment(config))
    own = of_own_class(own)
    load_saved(state, algorithm)
    algorithm.ranks = RankGroup(rank, config.learner.ranks, [line])
    line.send(Message.READY)
    while True:
        kind, body = line.receive(timeout_s=_patience_s(config))
        if kind == Message.BATCH:
            with denormals_are_zero():
                result = algorithm.learn(unpacked(body))
            line.send(Message.RESULT, *packed(told(result)))
        elif kind == Message.ADJUST:
            algorithm.adjust(with_values(own, msgspec.json.decode(body.data, type=dict[str, Number])))
        elif kind != Message.WAIT:
            raise RankLostError(f"{line.far_end} sent {kind.name} where a batch was expected")


def device_of(config: ExperimentConfig, local_rank: int) -> str:
    """The device of a rank. `cuda` is a GPU of its host for each, in turn; a name of one device is the same for all."""
    device = config.learner.device
    if device != "cuda" or not torch.cuda.device_count():
        return device
    return f"cuda:{local_rank % torch.cuda.device_count()}"


def _begun(body: Body) -> tuple[ExperimentConfig, bytes]:
    """The config in a BEGIN, and what `saved` made."""
    content = body.tobytes()
    size = int.from_bytes(content[:_LENGTH_BYTES], "little")
    text, state = content[_LENGTH_BYTES : _LENGTH_BYTES + size], content[_LENGTH_BYTES + size :]
    return ExperimentConfig.model_validate_json(text), state


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


def _patience_s(config: ExperimentConfig) -> float:
    """How long rank 0 may be busy with something else, in seconds; then it has failed by its own limits."""
    return max(config.limits.prepare_s, config.limits.save_s) + config.limits.rank_s
