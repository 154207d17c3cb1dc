"""One process of a learner with ranks started by torchrun, on one host or on several.

The ranks meet at torchrun's own store, which has no keys. So rank 0 seals the beginning of each lease, which names
code, with a key known only to the learner's workers. The data of computations is neither sealed nor encrypted.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import hashlib
import hmac
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psutil
from torch.distributed.rendezvous import rendezvous

from remuda.config.schema import ExperimentConfig
from remuda.deploy.rank_place import RankPlace
from remuda.deploy.roles import run_worker
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED
from remuda.learner.ranks.following import serve_leases
from remuda.learner.ranks.leading import Followers, Recruits
from remuda.learner.ranks.meeting import Meeting
from remuda.policy.ranks import RankLostError
from remuda.wire.connection_file import ConnectionFileError, wait_for
from remuda.wire.keys.folder import caller_keys
from remuda.wire.keys.pair import KeyPair
from remuda.worker.link import WorkerIdentity
from remuda.worker.process import bound_threads
from remuda.worker.serve import HopelessError, LastLeaseError

GATHER_S = 300.0
"""Seconds for the ranks to come together."""
INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
_PURPOSE = b"remuda: ranks of a learner: "


class TooFewRanksError(HopelessError):
    """A run wants more ranks than were started for this learner."""


class RanksGoneError(RankLostError, LastLeaseError):
    """A rank is gone; only torchrun can restart it, together with all others."""


def run_rank(
    place: RankPlace, connection_file: Path, *, runs_dirs: Sequence[Path] = (), coordinator_timeout_s: float
) -> int:
    """Be this rank of a learner until the learner is dismissed; return the exit code.

    Rank 0 joins the herd once all others are present. This process restarts no rank: any exit code other than EXIT_DONE
    makes torchrun restart all ranks, as often as --max-restarts allows.
    """
    bound_threads()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before there is anything to hand in, or where there never is
    try:
        connection = wait_for(connection_file, deadline_s=coordinator_timeout_s)
        secret = group_secret(caller_keys(connection, "worker").own, place.group)
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=GATHER_S)))
        meeting = Meeting(store, own_address(place, os.environ.get(INTERFACE_VARIABLE, "")), secret)
        if place.rank == 0:
            return _lead(place, meeting, connection_file, runs_dirs, coordinator_timeout_s)
        serve_leases(meeting, place.rank, local_rank=place.local_rank)
        return EXIT_DONE
    except ConnectionFileError as error:
        _say(f"learner rank {place.rank}: {error}")
        return EXIT_REFUSED
    except RankLostError as error:
        _say(f"learner rank {place.rank}: {error}")
        return EXIT_FAILED
    except Exception:
        traceback.print_exc()
        return EXIT_FAILED


def group_secret(own: KeyPair, group: str) -> bytes:
    """Return the key of all ranks of a group whose workers have the key `own`."""
    return hmac.digest(own.secret, _PURPOSE + group.encode(), hashlib.sha256)


def own_address(place: RankPlace, interface: str) -> str:
    """Return the only listening address: the address of this host towards rank 0, or of `interface`, if given. Raises
    RankLostError for an unknown interface."""
    if interface:
        addresses = psutil.net_if_addrs().get(interface, [])
        for each in addresses:
            if each.family in {socket.AF_INET, socket.AF_INET6}:
                return each.address
        raise RankLostError(f"this host has no network interface {interface!r} with an address ({INTERFACE_VARIABLE})")
    family, kind, _, _, rank_0 = socket.getaddrinfo(place.host_of_rank_0, place.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(rank_0)  # sends nothing
        return str(probe.getsockname()[0])


def recruits(meeting: Meeting, world_size: int) -> Recruits:
    """Gets the ranks for a lease; raises TooFewRanksError."""

    def recruit(config: ExperimentConfig) -> Followers:
        if config.learner.ranks > world_size:
            raise TooFewRanksError(
                f"learner.ranks is {config.learner.ranks}, and this learner was started with {world_size} ranks: "
                "set it to that, or start more"
            )
        return Followers(meeting, RanksGoneError)

    return recruit


def _lead(
    place: RankPlace, meeting: Meeting, connection_file: Path, runs_dirs: Sequence[Path], coordinator_timeout_s: float
) -> int:
    """Be rank 0, the learner. Raises RankLostError if other ranks do not come."""
    _say(f"learner rank 0 of {place.world_size}: with {meeting.gather(place.world_size, GATHER_S)}")
    exit_code = run_worker(
        "learner",
        WorkerIdentity(str(uuid4()), 1),
        connection_file,
        runs_dirs=runs_dirs,
        lifeline=None,
        coordinator_timeout_s=coordinator_timeout_s,
        recruits=recruits(meeting, place.world_size),
    )
    if exit_code == EXIT_DONE:
        meeting.dismiss(place.world_size)
    return exit_code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
