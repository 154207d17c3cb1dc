"""An Optuna study in a file of the sweep's folder: trials with settings and results."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from pydantic import JsonValue

from remuda.client.sweeps.space import Distribution, Search

FILE = "study.log"
"""File in the sweep's folder: Optuna's journal, readable by `optuna.load_study`."""

TrialEnd = Literal["complete", "pruned", "failed"]
_ENDS: dict[TrialEnd, TrialState] = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}
TRIAL_STATES: dict[TrialState, str] = {
    **{state: end for end, state in _ENDS.items()},
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


@dataclass(frozen=True)
class Trial:
    """Settings of a trial, with its result."""

    number: int
    """From 0."""
    settings: Mapping[str, JsonValue]
    """By dotted key."""
    state: str
    """A value of TRIAL_STATES."""
    value: float | None
    """The maximised value; for a pruned trial its newest report; None before any report."""


class Study:
    """The trials of a search. A new Study on the same folder continues the search."""

    def __init__(self, folder: Path, name: str, search: Search) -> None:
        """Opens or creates the study. Raises ValueError if the study in the file has different distributions."""
        self._search = search
        self._distributions = {key: _to_optuna(one) for key, one in search.space.items()}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = JournalStorage(JournalFileBackend(str(folder / FILE)))
        self._study = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True, pruner=_pruner(search)
        )
        self._study.sampler = _sampler(search, len(self._study.trials))
        for trial in self._study.get_trials(deepcopy=False):
            if trial.params and dict(trial.distributions) != self._distributions:
                raise ValueError(
                    f"{folder / FILE} was begun with another space: start over with --force, or keep it and give the "
                    "sweep another name or --sweep-dir"
                )

    @property
    def trials(self) -> list[Trial]:
        """All trials in order."""
        return [self._to_trial(trial) for trial in self._study.get_trials(deepcopy=False)]

    @property
    def log_settings(self) -> list[str]:
        """Settings with a uniform distribution of the logarithm, by key."""
        return [key for key, one in self._search.space.items() if one.log]

    def ask(self) -> Trial:
        """Begin the next trial."""
        asked = self._study.ask(self._distributions)
        return Trial(asked.number, self._settings(asked.params), "running", None)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the mean evaluation return of a running trial after `step` environment steps; return True if the trial
        should be pruned."""
        found = next(one for one in self._study.get_trials(deepcopy=False) if one.number == number)
        trial = optuna.trial.Trial(self._study, found._trial_id)  # pyright: ignore[reportPrivateUsage]
        if step not in found.intermediate_values:  # it is, of a run that goes on from an older checkpoint
            trial.report(value, step)
        return trial.should_prune()

    def tell(self, number: int, end: TrialEnd, value: float | None = None) -> None:
        """Record the end of a trial; `value` is required for a complete trial."""
        self._study.tell(number, value if end == "complete" else None, state=_ENDS[end], skip_if_finished=True)

    def importances(self) -> dict[str, float]:
        """Return the importance of settings by key: their share in the difference between the best trials and the rest
        (PED-ANOVA, Watanabe et al. 2023); empty with too few trials."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # it warns where trials are too few to say
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            try:
                return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))
            except (UserWarning, ValueError, RuntimeError, ZeroDivisionError):
                return {}

    def _to_trial(self, trial: FrozenTrial) -> Trial:
        value = trial.value if trial.state == TrialState.COMPLETE else None
        if trial.state == TrialState.PRUNED and trial.intermediate_values:
            value = trial.intermediate_values[max(trial.intermediate_values)]
        return Trial(trial.number, self._settings(trial.params), TRIAL_STATES[trial.state], value)

    def _settings(self, params: Mapping[str, object]) -> dict[str, JsonValue]:
        """Decode the choices of a trial: Optuna holds JSON text, which permits lists."""
        return {
            key: cast("JsonValue", params[key] if one.values is None else json.loads(str(params[key])))
            for key, one in self._search.space.items()
            if key in params
        }


def _to_optuna(given: Distribution) -> BaseDistribution:
    if given.values is not None:
        return CategoricalDistribution([json.dumps(value) for value in given.values])
    low, high = given.bounds
    if given.is_whole:
        return IntDistribution(int(low), int(high), log=given.log, step=int(given.step or 1))
    return FloatDistribution(low, high, log=given.log, step=given.step)


def _sampler(search: Search, made: int) -> optuna.samplers.BaseSampler:
    """Return the sampler, seeded by the search's seed and the number of existing trials, so that a continued search
    does not repeat its draws."""
    seed = (search.seed * 1_000_003 + made) % 2**32
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)  # several trials at once: not all the same


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    pruning = search.pruning
    if pruning is None:
        return optuna.pruners.NopPruner()
    return optuna.pruners.PercentilePruner(
        pruning.percentile, n_startup_trials=pruning.after_trials, n_warmup_steps=pruning.after_env_steps
    )
