"""Options of other programs, typed from habit: the error names Remuda's option for the same purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class _Former:
    """The replacement of an option."""

    instead: str
    verbs: tuple[str, ...] = ()
    """Commands of Remuda that have an option with this name themselves."""


_SAVED = _Former("--set checkpoint.interval_env_steps=N (and checkpoint.keep: how many are kept)")
_FORMER = {
    "--len": _Former("`remuda evaluate -l` (--length)"),
    "--norender": _Former("`remuda evaluate -nr` (--no-render)"),
    "--itr": _Former("`remuda evaluate -i` (--iteration)"),
    "--episodes": _Former("`remuda evaluate -n`; in training --set evaluator.episodes=N", ("evaluate",)),
    "--deterministic": _Former("`remuda evaluate -d`; evaluations in training always are", ("evaluate",)),
    "--save-freq": _SAVED,
    "--save_freq": _SAVED,
    "--epochs": _Former("--set stop.max_env_steps=N"),
    "--steps_per_epoch": _Former("--set log.progress_interval_env_steps=N"),
    "--exp_name": _Former("--set name=NAME, or --run-id for the folder alone"),
    "--data_dir": _Former("--runs-dir"),
    "--num_runs": _Former("`remuda sweep` with several seeds"),
}


def refusal(arguments: Sequence[str]) -> str | None:
    """The error for the first such option among the arguments of `remuda`; None if there is none."""
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    for argument in arguments:
        if argument == "--":
            return None
        option = argument.partition("=")[0]
        former = _FORMER.get(option)
        if former is not None and verb not in former.verbs:
            return f"there is no option {option}; here it is {former.instead}"
    return None
