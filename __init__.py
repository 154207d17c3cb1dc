"""Remuda, a training service for reinforcement learning: what scripts and notebooks need, loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.buffer.episodes import DatasetError
    from remuda.client.api import MainThreadError, TrainingFailedError, TrainingResult, launch, train
    from remuda.client.checking import UnusableError
    from remuda.client.client import Client
    from remuda.config.algorithms.base import AlgorithmConfig
    from remuda.config.declaration import Declaration, ReanalyzedColumns, Segments, Sequences, Steps, Unrolls
    from remuda.config.errors import ConfigError, Error, UserExitError
    from remuda.config.schema import ExperimentConfig
    from remuda.config.section import MayChange
    from remuda.config.user_code import UserCodeError
    from remuda.deploy.launcher import LaunchError
    from remuda.environments.errors import EnvironmentBuildError, UnsupportedSpaceError
    from remuda.evaluator.evaluate import EvaluationError
    from remuda.learner.callback import Callback, CallbackRun
    from remuda.policy.acting.torch_outputs import NetworkPolicy
    from remuda.policy.algorithms import UnknownAlgorithmError
    from remuda.policy.base import Algorithm, LearnResult, Policy, Reanalyzer, ReanalyzingAlgorithm
    from remuda.policy.entry import AlgorithmEntry, ReanalyzingEntry, Setup
    from remuda.policy.files.checkpoint_file import CheckpointError
    from remuda.policy.files.functions import load_action, load_policy, load_value
    from remuda.policy.networks.tensors import DeviceError
    from remuda.policy.row_plan import SmallBufferError, UnsupportedReuseError
    from remuda.policy.saved_state import StateMismatchError
    from remuda.policy.spaces import ActionSpec, ObservationSpec
    from remuda.runner.custom_loop import run_context
    from remuda.storage.bucket.address import BucketError, NotShippedError
    from remuda.storage.checkpoint_index import CheckpointIndexError
    from remuda.storage.existing_folder import RunFolderError
    from remuda.storage.lock import FolderOwnedError
    from remuda.training.journal_database import JournalError
    from remuda.wire.connection_file import ConnectionFileError
    from remuda.wire.conversation import RefusedError, UnreachableError
    from remuda.wire.keys.pair import NoCurveError
    from remuda.wire.messages.callbacks import Checkpointed, Ended, Episodes, Evaluated, Started

    __version__: str

__all__ = [
    "ActionSpec",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmEntry",
    "BucketError",
    "Callback",
    "CallbackRun",
    "CheckpointError",
    "CheckpointIndexError",
    "Checkpointed",
    "Client",
    "ConfigError",
    "ConnectionFileError",
    "DatasetError",
    "Declaration",
    "DeviceError",
    "Ended",
    "EnvironmentBuildError",
    "Episodes",
    "Error",
    "Evaluated",
    "EvaluationError",
    "ExperimentConfig",
    "FolderOwnedError",
    "JournalError",
    "LaunchError",
    "LearnResult",
    "MainThreadError",
    "MayChange",
    "NetworkPolicy",
    "NoCurveError",
    "NotShippedError",
    "ObservationSpec",
    "Policy",
    "ReanalyzedColumns",
    "Reanalyzer",
    "ReanalyzingAlgorithm",
    "ReanalyzingEntry",
    "RefusedError",
    "RunFolderError",
    "Segments",
    "Sequences",
    "Setup",
    "SmallBufferError",
    "Started",
    "StateMismatchError",
    "Steps",
    "TrainingFailedError",
    "TrainingResult",
    "UnknownAlgorithmError",
    "UnreachableError",
    "Unrolls",
    "UnsupportedReuseError",
    "UnsupportedSpaceError",
    "UnusableError",
    "UserCodeError",
    "UserExitError",
    "__version__",
    "launch",
    "load_action",
    "load_policy",
    "load_value",
    "run_context",
    "train",
]

if not TYPE_CHECKING:  # type checkers read the names above, and then know which names there are not
    _MODULES = {
        "buffer.episodes": "DatasetError",
        "client.api": "MainThreadError TrainingFailedError TrainingResult launch train",
        "client.checking": "UnusableError",
        "client.client": "Client",
        "config.algorithms.base": "AlgorithmConfig",
        "config.declaration": "Declaration ReanalyzedColumns Segments Sequences Steps Unrolls",
        "config.errors": "ConfigError Error UserExitError",
        "config.schema": "ExperimentConfig",
        "config.section": "MayChange",
        "config.user_code": "UserCodeError",
        "deploy.launcher": "LaunchError",
        "environments.errors": "EnvironmentBuildError UnsupportedSpaceError",
        "evaluator.evaluate": "EvaluationError",
        "learner.callback": "Callback CallbackRun",
        "policy.acting.torch_outputs": "NetworkPolicy",
        "policy.algorithms": "UnknownAlgorithmError",
        "policy.base": "Algorithm LearnResult Policy Reanalyzer ReanalyzingAlgorithm",
        "policy.entry": "AlgorithmEntry ReanalyzingEntry Setup",
        "policy.files.checkpoint_file": "CheckpointError",
        "policy.files.functions": "load_action load_policy load_value",
        "policy.networks.tensors": "DeviceError",
        "policy.row_plan": "SmallBufferError UnsupportedReuseError",
        "policy.saved_state": "StateMismatchError",
        "policy.spaces": "ActionSpec ObservationSpec",
        "runner.custom_loop": "run_context",
        "storage.bucket.address": "BucketError NotShippedError",
        "storage.checkpoint_index": "CheckpointIndexError",
        "storage.existing_folder": "RunFolderError",
        "storage.lock": "FolderOwnedError",
        "training.journal_database": "JournalError",
        "wire.connection_file": "ConnectionFileError",
        "wire.conversation": "RefusedError UnreachableError",
        "wire.keys.pair": "NoCurveError",
        "wire.messages.callbacks": "Checkpointed Ended Episodes Evaluated Started",
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import a name of `__all__` when it is first used: torch, numpy and zmq take seconds together."""
        if name == "__version__":
            value = import_module("importlib.metadata").version("remuda")
        elif name in _MODULE_OF:
            value = getattr(import_module(f"remuda.{_MODULE_OF[name]}"), name)
        else:
            raise AttributeError(f"module 'remuda' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
