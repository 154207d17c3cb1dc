"""From what things cost on this machine to the number of collectors, environments and threads of a run.

The model: a collector's step of its vector is a step of the environments and one call of the policy; the learner takes
its time for each environment step that it learns from. In serial mode and strictly on-policy the two take turns;
otherwise they run beside each other, each with cores of its own, and the slower one sets the pace.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from remuda.config.auto import COLLECTORS, NUM_ENVS, THREADS
from remuda.environments.vectorizing import ROUND_TRIP_S, processes_for

MOST_ENVS, MOST_COLLECTORS = 64, 64
GOOD_ENOUGH = 0.9
"""Of the sizes that reach this share of the best rate, the smallest are taken: few environments give fresh experience,
and processes cost memory."""

Curve = Mapping[int, float]
"""Seconds by size: those that were measured."""


@dataclass(frozen=True)
class Costs:
    """What was measured."""

    cores: int
    """That this process may use."""
    vector_s: Curve
    """A step of a vector, by its environments, in one process. Where only one was measured they are single objects, and
    several are stepped in turn."""
    act_s: Curve
    """A call of the policy and recording the step, by the number of observations."""
    learn_s: Curve
    """Learning, by threads: per environment step that was collected, or per update where the two are not coupled."""


@dataclass(frozen=True)
class Sizes:
    """Of a run."""

    collectors: int
    num_envs: int
    threads: int


@dataclass(frozen=True)
class SizingTask:
    """What is to be chosen, and how the run works."""

    collectors: int | None
    """None: to be chosen."""
    num_envs: int | None
    """None: to be chosen."""
    least_collectors: int = 1
    segments: int | None = None
    """On-policy: what an update learns from. A round of all environments brings a part of it without remainder."""
    serial: bool = False
    """One process does everything, whatever `collectors` says."""
    takes_turns: bool = False
    """Collectors wait while the learner learns, and the other way round."""
    coupled: bool = True
    """Each environment step is learned from so and so often; otherwise neither waits for the other."""
    in_processes: bool = False
    """Single objects may be stepped in several processes."""


def choose(costs: Costs, task: SizingTask) -> Sizes:
    """Choose sizes: the smallest among those that reach GOOD_ENOUGH of the best rate.

    On-policy, where an update always learns from as much, of those with equally many busy cores it is the one with most
    environments: their experience is more varied.

    What `task` names stays as it is. Otherwise no more processes than cores work at a time, if that is possible.
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
    """The expected rate of collecting, where learning keeps up with it if it has to."""
    share = min(1.0, costs.cores / _busy_cores(costs, task, sizes))
    collected = sizes.collectors * _collector_env_steps_per_s(costs, task, sizes) * share
    learned_s = costs.learn_s[sizes.threads]
    if not task.coupled or not learned_s:
        return collected
    if task.serial or task.takes_turns:
        return 1.0 / (1.0 / collected + learned_s)
    return min(collected, share / learned_s)


def _value(costs: Costs, task: SizingTask, sizes: Sizes) -> float:
    """What is to be large. Where nothing ties learning to collecting, cores are worth as much here as there."""
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
    """Numbers of environments that are tried."""
    if segments is None:
        return [2**power for power in range(int(math.log2(MOST_ENVS)) + 1)]
    return [count for count in range(1, min(segments, MOST_ENVS) + 1) if segments % count == 0]


def _whole_parts(candidates: Collection[Sizes], task: SizingTask) -> Collection[Sizes]:
    """Those that bring whole parts of what an update learns from; else those that bring no more; else all: what was
    given by hand may leave no choice."""
    if task.segments is None:
        return candidates
    total = {sizes: sizes.collectors * sizes.num_envs for sizes in candidates}
    whole = [sizes for sizes in candidates if task.segments % total[sizes] == 0]
    return whole or [sizes for sizes in candidates if total[sizes] <= task.segments] or candidates


def _collector_env_steps_per_s(costs: Costs, task: SizingTask, sizes: Sizes) -> float:
    """Of a collector with the cores that its environments want."""
    processes = _processes(costs, task, sizes)
    if processes:
        stepping_s = interpolated(costs.vector_s, -(-sizes.num_envs // processes)) + ROUND_TRIP_S
    else:
        stepping_s = interpolated(costs.vector_s, sizes.num_envs)
    return sizes.num_envs / (stepping_s + interpolated(costs.act_s, sizes.num_envs))


def _processes(costs: Costs, task: SizingTask, sizes: Sizes) -> int:
    """Processes of each collector's environments, 0 for none, as `env.vectorization: auto` chooses them."""
    if not task.in_processes or len(costs.vector_s) > 1:
        return 0
    cores = max(costs.cores // sizes.collectors, 1)
    return processes_for(interpolated(costs.vector_s, 1), num_envs=sizes.num_envs, cores=cores)


def _busy_cores(costs: Costs, task: SizingTask, sizes: Sizes) -> int:
    """How many work at a time."""
    collecting = sizes.collectors * max(_processes(costs, task, sizes), 1)
    if task.serial or task.takes_turns:
        return max(collecting, sizes.threads)
    return collecting + sizes.threads


def interpolated(curve: Curve, size: int) -> float:
    """Seconds at a size: on the line through the two sizes around it that were measured, or through the last two; in
    proportion where one was measured."""
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
    """The same costs where no curve falls: a larger size that took less time was disturbed less."""
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
    """The decision about the settings that were `auto`, and its figures, for the log."""
    chosen = ", ".join(f"{key} {number}" for key, number in settings_of(sizes).items() if key in auto)
    rate = env_steps_per_s(costs, task, sizes)
    per = "env step" if task.coupled else "update"
    return [
        f"auto: {chosen}, where about {_two_digits(rate):,} env steps/s are expected",
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


def _two_digits(rate: float) -> int:
    return int(float(f"{rate:.2g}"))
