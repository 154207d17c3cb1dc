"""256 collectors that do not see the runs folder beside 256 that do; a step of their environments sleeps 5 ms.

All of them are real processes on this machine, so the streams run over its loopback interface, and one disk is at both
ends. At 200 steps a second each, 256 collectors would take 51,200 steps a second. As often, a process is woken, finds
that no cache holds its memory any more, and falls asleep again: 40 to 60 µs of a core, with environments that do
nothing else. So on two cores both herds stay below that pace. The ratio then says how much processor time everything
without the folder costs beside everything with it. That is a harder question: with more cores streams would have time
to spare.
"""

from __future__ import annotations

from functools import partial

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.paced_herd import Pace, steps_per_s

COLLECTORS = 256
PACE = Pace(step_s=0.005, num_envs=16, chunk_env_steps=400)
"""A chunk is two seconds of a collector: 128 chunks a second of all, at that pace."""
WINDOW_S = 40.0


def figures(peers: bool) -> list[Figure]:
    """The second line, without a goal, says how much of the environments' own pace is left."""
    if peers:
        return []
    rate = partial(steps_per_s, PACE, COLLECTORS, window_s=WINDOW_S)
    name = f"without_folder, {COLLECTORS} collectors"
    beside = compare(
        name,
        unit="env steps/s",
        goal=">= 0.9",
        ours=partial(rate, shared_folder=False),
        references={"with the folder": partial(rate, shared_folder=True)},
    )
    pace = compare(
        f"{name}, share of their pace",
        unit="env steps/s",
        goal=">= 0",
        ours=lambda: beside[0].ours,
        references={"their environments alone": lambda: COLLECTORS * PACE.steps_per_s},
        n=1,
    )
    return beside + pace


if __name__ == "__main__":
    main(figures)
