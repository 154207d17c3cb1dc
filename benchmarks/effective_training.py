"""Effective training time: environment steps of a herd in which somebody is killed every minute, as a share of those of
the same herd in peace.

The processes are real: a coordinator that a service manager starts again one second after its end, and `remuda worker`
for two collectors, an evaluator and a learner, whose nannies start them again. Whom a kill -9 hits is drawn from a
seed: each role once before any is hit again. Steps are those that the ledger has counted, as `remuda status` shows.
Before the kills the herd is left in peace for a quarter of their time, and after them for as long again.

The environment's step takes a millisecond, which sets the pace and leaves most of two cores free. Were the processor
what limits the pace, a machine that is busy with something else would decide the ratio, and a dead process would leave
its share of the processor to the others, who would hide what it costs. The learner is held to `samples_per_insert`, so
steps are not taken either while it is gone for long.

At the end the counters are compared with the journal, with data/, and with the steps that environments say they took.

`REMUDA_EFFECTIVE_MINUTES` (20, in which kills happen) and `REMUDA_EFFECTIVE_INTERVAL_S` (60, between two of them)
change it: 2 and 8 are enough to see what a kill costs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remuda.benchmarks.exact_counters import check_exact
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.served_herd import WORKERS, ServedHerd
from remuda.benchmarks.training_kept import INTERVAL_S, Plan, Watched, kept_figures, plan, print_tables
from remuda.benchmarks.watching import watch
from remuda.config.load import load_config

CONFIG = Path(__file__).parent / "configs" / "effective_training.yaml"
LEAST_RATIO = 0.95
MOST_LOST_S = (1 - LEAST_RATIO) * INTERVAL_S
"""By one kill: what `LEAST_RATIO` allows at one a minute, and what kills in a hurry are measured by."""


def train_and_hit(herd: ServedHerd, counts: Path, plan: Plan, settings: Sequence[str] = ()) -> Watched:
    """Let a herd that has been started train by `configs/effective_training.yaml`, carry a plan out, and end its run.

    `counts` is where environments leave the number of their steps; `settings` override the config. Raises InexactError
    for a wrong counter."""
    config = load_config(CONFIG, overrides=[f"env.kwargs.counts={counts}", *settings]).config
    run = herd.submit(config)
    seen = watch(herd, plan)
    herd.stop()
    herd.end()
    print_tables(seen)
    lost = len(seen.collector_pids) - WORKERS["collector"]
    found = check_exact(run, config, counts, seen.collector_pids, lost=lost)
    print(found, file=sys.stderr, flush=True)
    return seen


def watched(plan: Plan) -> Watched:
    """A herd on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        herd = ServedHerd(Path(folder))
        try:
            herd.start()
            return train_and_hit(herd, Path(folder) / "counts", plan)
        finally:
            herd.end()


def figures(peers: bool) -> list[Figure]:
    """What is kept of steps and updates, and what one kill costs; effective_ray has a peer."""
    if peers:
        return []
    seen = watched(plan())
    return [
        *kept_figures("effective_training", seen, LEAST_RATIO),
        *compare(
            f"effective_training: lost by one kill, {seen.plan.how}",
            unit="s",
            goal="<= 1",
            ours=lambda: seen.lost_s,
            references={f"{1 - LEAST_RATIO:.2f} of a minute": lambda: MOST_LOST_S},
            n=1,
        ),
    ]


if __name__ == "__main__":
    main(figures)
