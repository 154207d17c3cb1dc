"""Algorithms by `policy.type` of a config: one way for built-in ones and a user's own.

Imports no torch, a built-in entry when it is first asked, and a user's own only where its algorithm is built.
"""

from __future__ import annotations

from functools import cache
from typing import cast

from remuda.config.algorithms.base import AlgorithmConfig, BuiltInConfig
from remuda.config.algorithms.custom import CustomConfig
from remuda.config.custom import CustomSettingsError, find_entry, parsed
from remuda.config.declaration import Declaration, ReanalyzedColumns
from remuda.config.errors import Error
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.policy.acting.network import Choice, Chosen
from remuda.policy.base import Algorithm, Policy, Reanalyzer
from remuda.policy.entry import AlgorithmEntry, ReanalyzingEntry, Setup
from remuda.policy.spaces import ActionSpec, ObservationSpec

Entry = AlgorithmEntry[AlgorithmConfig]


class UnknownAlgorithmError(Error, ValueError):
    """The algorithm of a config is not available here; the text says why."""


class NoSearchError(ValueError):
    """A policy is to act without its search, and has none."""


def make_algorithm(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    """Build the learning side, its weights drawn from `seed`. Imports torch.

    Raises UnsupportedSpaceError where the algorithm cannot work with the actions, and UnknownAlgorithmError.
    """
    entry, setup = _of(config, observation, action)
    return entry.make_algorithm(setup, seed)


def make_policy(
    config: ExperimentConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    chosen: Chosen = None,
    device: str = "cpu",
    search: bool = True,
) -> Policy:
    """Build the acting side; it acts once a state is loaded, on `device`. Raises UnsupportedSpaceError and
    UnknownAlgorithmError, as make_algorithm does.

    Without `search` it acts by its network alone. Raises NoSearchError if it always does.

    With `chosen`, its inference may choose its form by timing, and reports the choice; without, it is the same every
    time.
    """
    entry, setup = _of(config, observation, action, search=search)
    if not search and not entry.searches:
        raise NoSearchError(f"{config.policy.type} acts without a search, so there is none to leave out")
    choice = None if chosen is None else Choice(chosen, lower=config.learner.precision != "float32")
    return entry.make_policy(setup, chosen=choice, device=device)


def searches(config: ExperimentConfig) -> bool:
    """Whether the policy searches before it acts, and can also act by its network alone. Raises
    UnknownAlgorithmError."""
    return _entry_of(config)[0].searches


def make_reanalyzer(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, *, device: str = "cpu"
) -> Reanalyzer:
    """Build what computes the declaration's `reanalyzed` columns again; it does so once a state is loaded, on `device`.
    Raises UnsupportedSpaceError and UnknownAlgorithmError, as make_algorithm does."""
    entry, setup = _of(config, observation, action)
    if not isinstance(entry, ReanalyzingEntry):
        raise UnknownAlgorithmError(
            f"policy.type {config.policy.type!r}: {type(entry).__name__} is not derived from remuda.ReanalyzingEntry, "
            "so it makes nothing that computes rows again: set reanalyzer.count to 0"
        )
    return entry.make_reanalyzer(setup, device=device)


def reanalyzed_by_workers(config: ExperimentConfig) -> ReanalyzedColumns | None:
    """What workers of the role reanalyzer compute again in parallel mode; None if the experiment asks for none of them,
    or there is nothing to do for them. Raises UnknownAlgorithmError."""
    declared = declaration(config).reanalyzed
    return declared if declared is not None and declared.share and config.reanalyzer.count else None


def declaration(config: ExperimentConfig) -> Declaration:
    """Look up what the algorithm learns from, reports, and how it explores. Imports nothing of the user's.

    Raises UnknownAlgorithmError where a custom algorithm's declaration was not filled in.
    """
    policy = config.policy
    if isinstance(policy, CustomConfig):
        if policy.declaration is None:
            raise UnknownAlgorithmError(
                f"policy.type {policy.type!r} comes without its policy.declaration: load the config with remuda train, "
                "launch, submit or remuda.Client, which import the class and fill it in"
            )
        return policy.declaration
    return built_in_entry(policy.type).declaration(config, policy)


def _of(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, *, search: bool = True
) -> tuple[Entry, Setup[AlgorithmConfig]]:
    """The algorithm's class, and the input for its sides. Imports a custom one."""
    entry, settings = _entry_of(config)
    if isinstance(settings, BuiltInConfig):  # a class derived from a built-in one, too, reads them there
        config = config.model_copy(update={"policy": settings})
    return entry, Setup(config, settings, observation, action, search)


def _entry_of(config: ExperimentConfig) -> tuple[Entry, AlgorithmConfig]:
    """The algorithm's class and its settings. Imports a custom one."""
    policy = config.policy
    if not isinstance(policy, CustomConfig):
        return built_in_entry(policy.type), policy
    try:
        entry = find_entry(policy.type, source_dir=config.source_dir)
        settings = parsed(entry, policy)
    except (UserCodeError, CustomSettingsError) as error:
        raise UnknownAlgorithmError(str(error)) from error
    where = f"policy.type {policy.type!r}: {type(entry).__name__}"
    if not isinstance(entry, AlgorithmEntry):
        raise UnknownAlgorithmError(f"{where} is not derived from remuda.AlgorithmEntry")
    found = cast("Entry", entry)
    if policy.declaration is not None and found.declaration(config, settings) != policy.declaration:
        raise UnknownAlgorithmError(
            f"{where} declares something else than when the run was started: its code has changed. Begin a new run, or "
            "undo the change"
        )
    return found, settings


@cache
def built_in_entry(type: str) -> Entry:
    """The entry of one of Remuda's own algorithms."""
    return cast("Entry", find_entry(type, source_dir=None))
