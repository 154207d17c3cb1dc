"""Chooses the number of collectors, environments and threads of a run from measured costs.

The model: a collector's step is a step of the environments and one call of the policy; the learner needs time for each
environment step. In serial mode and strictly on-policy the two take turns; otherwise they run side by side on separate
cores, and the slower side sets the pace.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from remuda.config.current import COLLECTORS, NUM_ENVS, THREADS
from remuda.environments.processes import ROUND_TRIP_S, processes_for

MOST_ENVS, MOST_COLLECTORS = 64, 64
GOOD_ENOUGH = 0.9
"""Share of the best rate that is good enough. The smallest sizes with this rate are taken: few environments give fresh
experience, and processes cost memory."""

Curve = Mapping[int, float]
"""Seconds by measured size."""


@dataclass(frozen=True)
class Costs:
    """Measured costs."""

    cores: int
    """Cores usable by this process."""
    vector_s: Curve
    """Seconds of a vector's step, by number of environments, in one process. A single measured size means single
    objects, stepped in turn."""
    act_s: Curve
    """A call of the policy and recording the step, by the number of observations."""
    learn_s: Curve
    """Learning, by threads: per collected environment step, or per update if the two are not coupled."""


@dataclass(frozen=True)
class Sizes:
    """Of a run."""

    collectors: int
    num_envs: int
    threads: int


@dataclass(frozen=True)
class SizingTask:
    """Sizes to choose, and properties of the run."""

    collectors: int | None
    """None: to choose."""
    num_envs: int | None
    """None: to choose."""
    least_collectors: int = 1
    segments: int | None = None
    """On-policy: segments of an update. A round of all environments brings a part without remainder."""
    serial: bool = False
    """True if one process does everything; `collectors` is ignored."""
    takes_turns: bool = False
    """True if collectors wait while the learner learns, and the reverse."""
    coupled: bool = True
    """True if the learner learns from each environment step a fixed number of times; otherwise neither side waits."""
    in_processes: bool = False
    """Single objects may be stepped in several processes."""


def choose(costs: Costs, task: SizingTask) -> Sizes:
    """Choose the smallest sizes with GOOD_ENOUGH of the best rate.

    On-policy, with updates of fixed size, choose the most environments for equally many busy cores: their experience is
    more varied.

    Sizes in `task` stay. The other sizes keep no more processes than cores busy, if possible.
    """
    rising = monotone(costs)
    everything = list(_candidates(rising, task))
    fitting = [sizes for sizes in everything if _busy_cores(rising, task, sizes) <= max(costs.cores, 2)]
    rates = {sizes: _value(rising, task, sizes) for sizes in _whole_parts(fitting or everything, task)}
    good = GOOD_ENOUGH * max(rates.values())

    def effort(sizes: Sizes) -> tuple[int, int, int, int]:
        total = sizes.collectors * sizes.num_envs
        less = total if task.segments is None else -total
        return _busy_cores(rising, task, sizes), less, sizes.collectors, sizes.threads

    return min((sizes for sizes, rate in rates.items() if rate >= good), key=effort)


def env_steps_per_s(costs: Costs, task: SizingTask, sizes: Sizes) -> float:
    """Return the expected rate of collecting, limited by coupled learning."""
    share = min(1.0, costs.cores / _busy_cores(costs, task, sizes))
    collected = sizes.collectors * _collector_env_steps_per_s(costs, task, sizes) * share
    learned_s = costs.learn_s[sizes.threads]
    if not task.coupled or not learned_s:
        return collected
    if task.serial or task.takes_turns:
        return 1.0 / (1.0 / collected + learned_s)
    return min(collected, share / learned_s)


def _value(costs: Costs, task: SizingTask, sizes: Sizes) -> float:
    """Return the objective. If learning and collecting are not coupled, cores count the same for both."""
    rate = env_steps_per_s(costs, task, sizes)
    return rate if task.coupled else rate / max(costs.learn_s[sizes.threads], 1e-12)


def _candidates(costs: Costs, task: SizingTask) -> Iterator[Sizes]:
    most = max(min(costs.cores, MOST_COLLECTORS), task.least_collectors)
    collectors = list(range(task.least_collectors, most + 1))
    choices = (
        [1] if task.serial else collectors if task.collectors is None else [task.collectors],
        _vectors(task.segments) if task.num_envs is None else [task.num_envs],
        sorted(costs.learn_s),
    )
    return itertools.starmap(Sizes, itertools.product(*choices))


def _vectors(segments: int | None) -> list[int]:
    """Return the candidate numbers of environments."""
    if segments is None:
        return [2**power for power in range(int(math.log2(MOST_ENVS)) + 1)]
    return [count for count in range(1, min(segments, MOST_ENVS) + 1) if segments % count == 0]


def _whole_parts(candidates: Collection[Sizes], task: SizingTask) -> Collection[Sizes]:
    """Return the candidates with whole parts of an update; else candidates with no more than one update; else all,
    since given sizes may leave no choice."""
    if task.segments is None:
        return candidates
    total = {sizes: sizes.collectors * sizes.num_envs for sizes in candidates}
    whole = [sizes for sizes in candidates if task.segments % total[sizes] == 0]
    return whole or [sizes for sizes in candidates if total[sizes] <= task.segments] or candidates


def _collector_env_steps_per_s(costs: Costs, task: SizingTask, sizes: Sizes) -> float:
    """Return the rate of a collector with all cores for its environments."""
    processes = _processes(costs, task, sizes)
    if processes:
        stepping_s = interpolated(costs.vector_s, -(-sizes.num_envs // processes)) + ROUND_TRIP_S
    else:
        stepping_s = interpolated(costs.vector_s, sizes.num_envs)
    return sizes.num_envs / (stepping_s + interpolated(costs.act_s, sizes.num_envs))


def _processes(costs: Costs, task: SizingTask, sizes: Sizes) -> int:
    """Return the number of processes for each collector's environments, 0 for none, as
    `env.vectorization: auto` does."""
    if not task.in_processes or len(costs.vector_s) > 1:
        return 0
    cores = max(costs.cores // sizes.collectors, 1)
    return processes_for(interpolated(costs.vector_s, 1), num_envs=sizes.num_envs, cores=cores)


def _busy_cores(costs: Costs, task: SizingTask, sizes: Sizes) -> int:
    """Return the number of cores busy at a time."""
    collecting = sizes.collectors * max(_processes(costs, task, sizes), 1)
    if task.serial or task.takes_turns:
        return max(collecting, sizes.threads)
    return collecting + sizes.threads


def interpolated(curve: Curve, size: int) -> float:
    """Return the seconds at a size: on the line through the two neighbouring measured sizes, or through the last two;
    in proportion for a single measured size."""
    known = sorted(curve)
    if size <= known[0]:
        return curve[known[0]]
    if size >= known[-1]:
        if len(known) == 1:
            return curve[known[0]] * size / known[0]
        below, above = known[-2:]
    else:
        below, above = next((a, b) for a, b in itertools.pairwise(known) if a <= size <= b)
    slope = max((curve[above] - curve[below]) / (above - below), 0.0)
    return curve[below] + slope * (size - below)


def monotone(costs: Costs) -> Costs:
    """Return the costs without falling curves: a larger size with less time was disturbed less."""
    return replace(costs, vector_s=_rising(costs.vector_s), act_s=_rising(costs.act_s))


def _rising(curve: Curve) -> dict[int, float]:
    rising: dict[int, float] = {}
    low = math.inf
    for size in sorted(curve, reverse=True):
        low = min(low, curve[size])
        rising[size] = low
    return dict(sorted(rising.items()))


def settings_of(sizes: Sizes) -> dict[str, int]:
    """The sizes by setting."""
    return {COLLECTORS: sizes.collectors, NUM_ENVS: sizes.num_envs, THREADS: sizes.threads}


def log_lines(costs: Costs, task: SizingTask, sizes: Sizes, auto: Collection[str]) -> list[str]:
    """Return log lines with the chosen `auto` settings and the figures behind them."""
    chosen = ", ".join(f"{key} {number}" for key, number in settings_of(sizes).items() if key in auto)
    rate = env_steps_per_s(costs, task, sizes)
    per = "env step" if task.coupled else "update"
    return [
        f"auto: {chosen}, where about {int(float(f'{rate:.2g}')):,} env steps/s are expected",
        f"auto: measured on {costs.cores} cores: a step of {_by_size(costs.vector_s, 'environment')}; acting and "
        f"recording for {_by_size(costs.act_s, 'observation')}; learning from one {per} with "
        f"{_by_size(costs.learn_s, 'thread')}",
    ]


def _by_size(curve: Curve, what: str) -> str:
    """`1 environment 50 us, 32 80 us`."""
    first, *others = (f"{size} {{}}{_duration(curve[size])}" for size in sorted(curve))
    plural = "" if min(curve) == 1 else "s"
    return ", ".join([first.format(f"{what}{plural} "), *(one.format("") for one in others)])


def _duration(time_s: float) -> str:
    return f"{time_s * 1e6:.3g} us" if time_s < 1e-3 else f"{time_s * 1e3:.3g} ms"
