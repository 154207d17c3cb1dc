"""Algorithms by `policy.type` of a config, built-in or a user's own.

Imports no torch. Imports a built-in entry on first use, and a user's own only to build the algorithm.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

from remuda.config.algorithms.base import AlgorithmConfig, BuiltInConfig
from remuda.config.algorithms.registry import CustomConfig
from remuda.config.custom import CustomSettingsError, find_entry, parsed
from remuda.config.declaration import Declaration, ReanalyzedColumns
from remuda.config.errors import Error
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.policy.acting.network import Choice, Chosen, Shared
from remuda.policy.base import Algorithm, Policy, Reanalyzer
from remuda.policy.entry import AlgorithmEntry, ReanalyzingEntry, Setup
from remuda.policy.spaces import ActionSpec, ObservationSpec

Entry = AlgorithmEntry[AlgorithmConfig]
T = TypeVar("T")


class UnknownAlgorithmError(Error, ValueError):
    """The algorithm of a config is not available here; the message says why."""


class NoSearchError(ValueError):
    """The policy should act without its search, but never searches."""


def make_algorithm(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    """Build the learning side, with weights drawn from `seed`. Imports torch.

    Raises UnsupportedSpaceError if the algorithm does not support the spaces, and UnknownAlgorithmError.
    """
    entry, setup = _of(config, observation, action)
    return _made(entry.make_algorithm(setup, seed), Algorithm, entry.make_algorithm, setup)


def make_policy(
    config: ExperimentConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    chosen: Chosen = None,
    device: str = "cpu",
    search: bool = True,
    shared: Shared | None = None,
) -> Policy:
    """Build the acting side. The policy acts after `load_state`.

    Args:
        chosen: gets the implementation of inference, chosen by timing; None: the same implementation every time.
        device: torch's.
        search: False: act by the network alone.
        shared: for shared inference.

    Raises UnsupportedSpaceError and UnknownAlgorithmError, as make_algorithm does, and NoSearchError if there is no
    search to leave out.
    """
    entry, setup = _of(config, observation, action, search=search, shared=shared)
    if not search and not entry.searches:
        raise NoSearchError(f"{config.policy.type} acts without a search, so there is none to leave out")
    choice = None if chosen is None else Choice(chosen, lower=config.learner.precision != "float32")
    return _made(entry.make_policy(setup, chosen=choice, device=device), Policy, entry.make_policy, setup)


def searches(config: ExperimentConfig) -> bool:
    """True if the policy searches before acting and can also act by its network alone. Raises UnknownAlgorithmError."""
    return _entry_of(config)[0].searches


def make_reanalyzer(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, *, device: str = "cpu"
) -> Reanalyzer:
    """Build the reanalyzer of the declaration's `reanalyzed` columns, on `device`. It computes after `load_state`.
    Raises UnsupportedSpaceError and UnknownAlgorithmError, as make_algorithm does."""
    entry, setup = _of(config, observation, action)
    if not isinstance(entry, ReanalyzingEntry):
        raise UnknownAlgorithmError(
            f"policy.type {config.policy.type!r}: {type(entry).__name__} is not derived from remuda.ReanalyzingEntry, "
            "so it has no reanalyzer: set reanalyzer.count to 0"
        )
    return _made(entry.make_reanalyzer(setup, device=device), Reanalyzer, entry.make_reanalyzer, setup)


def reanalyzed_by_workers(config: ExperimentConfig) -> ReanalyzedColumns | None:
    """Columns for workers of the role reanalyzer in parallel mode; None if the experiment has no reanalyzers or nothing
    to reanalyze. Raises UnknownAlgorithmError."""
    declared = declaration(config).reanalyzed
    return declared if declared is not None and declared.share and config.reanalyzer.count else None


def declaration(config: ExperimentConfig) -> Declaration:
    """Look up rows, metrics and exploration of the algorithm. Imports no code of the user.

    Raises UnknownAlgorithmError if the declaration of a custom algorithm was not filled in.
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


def _made(made: T, kind: type[object], by: Callable[..., T], setup: Setup[AlgorithmConfig]) -> T:
    """Return what a method of an entry, maybe of the user, has made. Raises UnknownAlgorithmError for another kind."""
    if isinstance(made, kind):
        return made
    raise UnknownAlgorithmError(
        f"policy.type {setup.config.policy.type!r}: {by.__qualname__} should return a remuda.{kind.__name__}, not "
        f"{reprlib.repr(made)}"
    )


def _of(
    config: ExperimentConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    search: bool = True,
    shared: Shared | None = None,
) -> tuple[Entry, Setup[AlgorithmConfig]]:
    """Return the entry of the algorithm, and the input for both sides. Imports a custom entry."""
    entry, settings = _entry_of(config)
    if isinstance(settings, BuiltInConfig):  # a class derived from a built-in one, too, reads them there
        config = config.model_copy(update={"policy": settings})
    return entry, Setup(config, settings, observation, action, search, shared)


def _entry_of(config: ExperimentConfig) -> tuple[Entry, AlgorithmConfig]:
    """Return the entry of the algorithm and its settings. Imports a custom entry."""
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
            f"{where} differs in its declaration from the start of the run: its code has changed. Begin a new run, or "
            "undo the change"
        )
    return found, settings


@cache
def built_in_entry(type: str) -> Entry:
    """Entry of a built-in algorithm."""
    return cast("Entry", find_entry(type, source_dir=None))
