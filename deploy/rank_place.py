"""Which learner rank this process is, as torchrun says in its environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
GROUP_VARIABLE = "TORCHELASTIC_RUN_ID"
_LOOPBACK = ("localhost", "127.0.0.1")


class RankPlace(Struct, frozen=True):
    """The place of one process among the ranks of a learner."""

    rank: int
    world_size: int
    local_rank: int
    """Among the ranks of its host."""
    host_of_rank_0: str
    group: str
    """The name of all these ranks together (torchrun's --rdzv-id)."""

    @property
    def listening_address(self) -> str:
        """Where rank 0 listens: on every interface, unless all ranks are on one machine. CURVE lets in who has the
        key."""
        if ":" in self.host_of_rank_0:
            return "tcp://[::1]:0" if self.host_of_rank_0 == "::1" else "tcp://[::]:0"
        return "tcp://127.0.0.1:0" if self.host_of_rank_0 in _LOOPBACK else "tcp://0.0.0.0:0"

    def address_of_rank_0(self, port: int) -> str:
        """Where the others reach it."""
        host = self.host_of_rank_0
        return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


class RankPlaceError(Exception):
    """These variables cannot be of one rank."""


def rank_place(environment: Mapping[str, str]) -> RankPlace | None:
    """The place that these environment variables name; None if they name none, or that of a rank alone. Raises
    RankPlaceError."""
    if any(not environment.get(name) for name in VARIABLES):
        return None
    rank, world_size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if rank >= world_size:
        raise RankPlaceError(f"the environment variable RANK is {rank}, and WORLD_SIZE {world_size}")
    if world_size == 1:
        return None
    local_rank = _number(environment, "LOCAL_RANK") if environment.get("LOCAL_RANK") else rank
    return RankPlace(rank, world_size, local_rank, environment["MASTER_ADDR"], environment.get(GROUP_VARIABLE, ""))


def _number(environment: Mapping[str, str], name: str) -> int:
    if not environment[name].isdecimal():
        raise RankPlaceError(f"the environment variable {name} is {environment[name]!r}, and no number")
    return int(environment[name])
