"""Remuda, a training service for reinforcement learning: what scripts and notebooks need, loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.api.runs import TrainingFailedError, TrainingResult, launch, train
    from remuda.client.checking import UnusableError
    from remuda.client.client import Client
    from remuda.config.algorithms.base import AlgorithmConfig
    from remuda.config.declaration import Declaration, ReanalyzedColumns, Segments, Sequences, Steps, Unrolls
    from remuda.config.errors import ConfigError
    from remuda.config.schema import ExperimentConfig
    from remuda.environments.unsupported import UnsupportedSpaceError
    from remuda.policy.acting.network_policy import NetworkPolicy
    from remuda.policy.base import Algorithm, LearnResult, Policy, Reanalyzer, ReanalyzingAlgorithm
    from remuda.policy.entry import AlgorithmEntry, ReanalyzingEntry, Setup
    from remuda.policy.files.functions import load_policy, load_value
    from remuda.policy.spaces import ActionSpec, ObservationSpec
    from remuda.runner.custom_loop import run_context

    __version__: str

__all__ = [
    "ActionSpec",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmEntry",
    "Client",
    "ConfigError",
    "Declaration",
    "ExperimentConfig",
    "LearnResult",
    "NetworkPolicy",
    "ObservationSpec",
    "Policy",
    "ReanalyzedColumns",
    "Reanalyzer",
    "ReanalyzingAlgorithm",
    "ReanalyzingEntry",
    "Segments",
    "Sequences",
    "Setup",
    "Steps",
    "TrainingFailedError",
    "TrainingResult",
    "Unrolls",
    "UnsupportedSpaceError",
    "UnusableError",
    "__version__",
    "launch",
    "load_policy",
    "load_value",
    "run_context",
    "train",
]

if not TYPE_CHECKING:  # type checkers read the names above, and then know which names there are not
    _MODULES = {
        "ActionSpec": "policy.spaces",
        "Algorithm": "policy.base",
        "AlgorithmConfig": "config.algorithms.base",
        "AlgorithmEntry": "policy.entry",
        "Client": "client.client",
        "ConfigError": "config.errors",
        "Declaration": "config.declaration",
        "ExperimentConfig": "config.schema",
        "LearnResult": "policy.base",
        "NetworkPolicy": "policy.acting.network_policy",
        "ObservationSpec": "policy.spaces",
        "Policy": "policy.base",
        "ReanalyzedColumns": "config.declaration",
        "Reanalyzer": "policy.base",
        "ReanalyzingAlgorithm": "policy.base",
        "ReanalyzingEntry": "policy.entry",
        "Segments": "config.declaration",
        "Sequences": "config.declaration",
        "Setup": "policy.entry",
        "Steps": "config.declaration",
        "TrainingFailedError": "api.runs",
        "TrainingResult": "api.runs",
        "Unrolls": "config.declaration",
        "UnsupportedSpaceError": "environments.unsupported",
        "UnusableError": "client.checking",
        "launch": "api.runs",
        "load_policy": "policy.files.functions",
        "load_value": "policy.files.functions",
        "run_context": "runner.custom_loop",
        "train": "api.runs",
    }

    def __getattr__(name: str) -> object:
        """Import a name of `__all__` when it is first used: torch, numpy and zmq take seconds together."""
        if name == "__version__":
            value = import_module("importlib.metadata").version("remuda")
        elif name in _MODULES:
            value = getattr(import_module(f"remuda.{_MODULES[name]}"), name)
        else:
            raise AttributeError(f"module 'remuda' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
