"""Learner rank of this process, from torchrun's environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
GROUP_VARIABLE = "TORCHELASTIC_RUN_ID"


class RankPlace(Struct, frozen=True):
    """Position of one process among the ranks of a learner."""

    rank: int
    world_size: int
    local_rank: int
    """Rank within its host."""
    host_of_rank_0: str
    port: int
    """Port of torchrun's store on the host of rank 0."""
    group: str
    """The name of all these ranks together (torchrun's --rdzv-id)."""


class RankPlaceError(Exception):
    """The variables are contradictory."""


def rank_place(environment: Mapping[str, str]) -> RankPlace | None:
    """Return the position in these environment variables; None without one, or for a single rank. Raises
    RankPlaceError."""
    if any(not environment.get(name) for name in VARIABLES):
        return None
    rank, world_size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if rank >= world_size:
        raise RankPlaceError(f"the environment variable RANK is {rank}, and WORLD_SIZE {world_size}")
    if world_size == 1:
        return None
    local_rank = _number(environment, "LOCAL_RANK") if environment.get("LOCAL_RANK") else rank
    port = _number(environment, "MASTER_PORT")
    group = environment.get(GROUP_VARIABLE, "")
    return RankPlace(rank, world_size, local_rank, environment["MASTER_ADDR"], port, group)


def _number(environment: Mapping[str, str], name: str) -> int:
    if not environment[name].isdecimal():
        raise RankPlaceError(f"the environment variable {name} is {environment[name]!r}, and no number")
    return int(environment[name])
