"""A learner whose ranks torchrun has started, on one host or on several: what each of its processes does.

Only the port of rank 0 goes through torchrun's own store, which has no keys: who changes it there can keep ranks from
coming together, as by stopping torchrun, but is no rank and reads nothing.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from remuda.deploy.rank_place import RankPlace
from remuda.deploy.roles import run_worker
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED
from remuda.learner.ranks.joining import join
from remuda.learner.ranks.network_line import ranks_pair
from remuda.learner.ranks.server import RankServer
from remuda.policy.ranks import RankLostError
from remuda.wire.connection_file import ConnectionFileError, wait_for
from remuda.wire.keys.own import caller_keys
from remuda.wire.keys.pair import KeyPair
from remuda.worker.identity import WorkerIdentity
from remuda.worker.threads import bound_threads

GATHER_S = 300.0
"""How long the ranks may take to come together."""
SILENCE_S = 60.0
"""How long a rank may be silent where no config says otherwise."""
PORT = "remuda/port of learner rank 0"
"""Where torchrun's store has it."""


def run_rank(
    place: RankPlace, connection_file: Path, *, runs_dirs: Sequence[Path] = (), coordinator_timeout_s: float
) -> int:
    """Be this rank of a learner until the learner is told to leave; returns the exit code.

    Rank 0 joins the herd once all others are there. No rank is started again here: any other exit code than EXIT_DONE
    makes torchrun start all of them again, as often as --max-restarts allows.
    """
    bound_threads()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before there is anything to hand in, or where there never is
    try:
        connection = wait_for(connection_file, deadline_s=coordinator_timeout_s)
        pair = ranks_pair(caller_keys(connection, "worker").own, place.group)
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=GATHER_S)))
        if place.rank == 0:
            return _lead(place, pair, store, connection_file, runs_dirs, coordinator_timeout_s)
        join(
            place.rank,
            place.local_rank,
            pair,
            lambda: place.address_of_rank_0(_told_port(store)),
            within_s=GATHER_S,
            timeout_s=SILENCE_S,
        )
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


def _lead(
    place: RankPlace,
    pair: KeyPair,
    store: Store,
    connection_file: Path,
    runs_dirs: Sequence[Path],
    coordinator_timeout_s: float,
) -> int:
    """Be rank 0: the learner. Raises RankLostError if the others do not come."""
    server = RankServer(place.listening_address, pair, place.world_size, timeout_s=SILENCE_S)
    exit_code = EXIT_FAILED
    try:
        store.set(PORT, str(server.port))
        _say(f"learner rank 0 of {place.world_size}: with {server.gather(GATHER_S)}")
        exit_code = run_worker(
            "learner",
            WorkerIdentity(str(uuid4()), 1),
            connection_file,
            runs_dirs=runs_dirs,
            lifeline=None,
            coordinator_timeout_s=coordinator_timeout_s,
            recruits=server.lease,
        )
        return exit_code
    finally:
        server.close(leave=exit_code == EXIT_DONE)


def _told_port(store: Store) -> int:
    """What rank 0 says in torchrun's store; waits for it. Raises RankLostError if it is no port."""
    told = store.get(PORT).decode(errors="replace")
    if not told.isdecimal() or not 0 < int(told) < 1 << 16:
        raise RankLostError("torchrun's store has no port of learner rank 0")
    return int(told)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
