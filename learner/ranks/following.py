"""What the ranks besides rank 0 do: build the same algorithm, and learn from their part of each batch."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
from collections.abc import Mapping
from enum import IntEnum
from typing import cast

import torch

from remuda.config.schema import ExperimentConfig, Precision
from remuda.environments.check import check_environment
from remuda.learner.ranks.group import RankGroup
from remuda.learner.ranks.parts import packed, told, unpacked
from remuda.learner.start import new_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.networks.denormals import denormals_are_zero
from remuda.worker.affinity import settle

SIGN_OF_LIFE_S = 10.0
"""How often rank 0 says that it is there, while there are no batches."""


class Message(IntEnum):
    """What ranks send each other, one to one."""

    READY = 0
    """To rank 0: it has the algorithm, and learns from now on."""
    BATCH = 1
    """From rank 0: a part of a batch."""
    RESULT = 2
    """The answer: what was learned from it."""
    WAIT = 3
    """From rank 0: it is there, and has no batch."""


def follow(group: RankGroup, config: ExperimentConfig, state: bytes) -> None:
    """Learn with rank 0 until it is gone, from a state that `saved` made. Raises RankLostError, and what the algorithm
    raises."""
    settle(config, "learner", 0)
    own = config.model_copy(
        update={"learner": config.learner.model_copy(update={"device": device_of(config, group.rank)})}
    )
    algorithm = new_algorithm(own, *check_environment(config))
    load_saved(state, algorithm)
    algorithm.ranks = group
    group.send(0, Message.READY)
    while True:
        kind, body = group.receive(0, timeout_s=_patience_s(config))
        if kind == Message.BATCH:
            with denormals_are_zero():
                result = algorithm.learn(unpacked(body))
            group.send(0, Message.RESULT, packed(told(result)))


def device_of(config: ExperimentConfig, rank: int) -> str:
    """The device of a rank. `cuda` is a GPU for each, in turn; what names one device is the same for all."""
    device = config.learner.device
    if device != "cuda" or not torch.cuda.device_count():
        return device
    return f"cuda:{rank % torch.cuda.device_count()}"


def saved(algorithm: Algorithm) -> bytes:
    """What all ranks must have in common when they begin: the algorithm's state and that of torch's generator."""
    file = io.BytesIO()
    precision = None if algorithm.products is None else algorithm.products.precision
    state = {"algorithm": algorithm.state(), "generator": torch.get_rng_state(), "precision": precision}
    torch.save(state, file)
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
