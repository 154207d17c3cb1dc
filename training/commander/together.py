"""Counters and end of several policies of a run, in both modes."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.training.commander.commander import Commander
from remuda.training.commander.end import STOP_VALUE, End
from remuda.wire.messages import Counters


def joined_counters(known: Sequence[Counters]) -> Counters:
    """Return the counters of the run: sums over policies, except environment steps, which count once for all agents."""
    if len(known) == 1:
        return known[0]
    return Counters(
        env_step=max(one.env_step for one in known),
        train_iter=sum(one.train_iter for one in known),
        episode=sum(one.episode for one in known),
        policy_version=sum(one.policy_version for one in known),
        wall_s=max(one.wall_s for one in known),
    )


def last_returns(commanders: Sequence[Commander]) -> list[float | None]:
    """Return the newest mean evaluation return of each policy."""
    results = [(commander.last, commander.last_record) for commander in commanders]
    return [
        result.reward_mean if result is not None else None if record is None else record.reward
        for result, record in results
    ]


def mean_return(returns: Sequence[float | None]) -> float | None:
    """Return the mean of the returns; None until each policy has a return."""
    known = [value for value in returns if value is not None]
    return sum(known) / len(known) if known and len(known) == len(returns) else None


def joined_end(commanders: Sequence[Commander]) -> End | None:
    """Reason for the end of the run; None while the run continues. A failure counts more than other reasons."""
    found: End | None = None
    for commander in commanders:
        end = commander.ending
        if end is not None and (found is None or (end.state == "failed" and found.state != "failed")):
            found = end
    return found


def end_all(commanders: Sequence[Commander], end: End, *, skip_final_evaluation: bool) -> None:
    """End all policies."""
    for commander in commanders:
        commander.end(end, skip_final_evaluation=skip_final_evaluation)


def share_end(commanders: Sequence[Commander], bound: float | None) -> None:
    """End all policies with the first that ends, or once all have reached `bound`, the `stop.stop_value`."""
    ended = [commander for commander in commanders if commander.ending is not None]
    end = ended[0].ending if ended else all_solved(commanders, bound)
    if end is not None and len(ended) < len(commanders):
        skips = any(commander.skips_final_evaluation for commander in ended)
        end_all([each for each in commanders if each.ending is None], end, skip_final_evaluation=skips)


def all_solved(commanders: Sequence[Commander], bound: float | None) -> End | None:
    """Return the end of a run whose policies have all reached `bound`, the `stop.stop_value`."""
    returns = last_returns(commanders)
    if bound is None or not all(value is not None and value >= bound for value in returns):
        return None
    evaluated = [commander.last_record if commander.last is None else commander.last.record for commander in commanders]
    pairs = zip(commanders, evaluated, strict=True)
    if not all(record is not None and commander.may_solve(record) for commander, record in pairs):
        return None
    each = ", ".join(f"{value:.6g}" for value in returns)
    text = f"the mean evaluation returns of all policies ({each}) have reached stop_value {bound:.6g}"
    return End(STOP_VALUE, text)
