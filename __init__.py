"""Remuda, a training service for reinforcement learning: what scripts and notebooks need, loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.buffer.minari_files import DatasetError
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
    from remuda.storage.ownership import FolderOwnedError
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
        "ActionSpec": "policy.spaces",
        "Algorithm": "policy.base",
        "AlgorithmConfig": "config.algorithms.base",
        "AlgorithmEntry": "policy.entry",
        "BucketError": "storage.bucket.address",
        "Callback": "learner.callback",
        "CallbackRun": "learner.callback",
        "CheckpointError": "policy.files.checkpoint_file",
        "CheckpointIndexError": "storage.checkpoint_index",
        "Checkpointed": "wire.messages.callbacks",
        "Client": "client.client",
        "ConfigError": "config.errors",
        "ConnectionFileError": "wire.connection_file",
        "DatasetError": "buffer.minari_files",
        "Declaration": "config.declaration",
        "DeviceError": "policy.networks.tensors",
        "Ended": "wire.messages.callbacks",
        "EnvironmentBuildError": "environments.errors",
        "Episodes": "wire.messages.callbacks",
        "Error": "config.errors",
        "Evaluated": "wire.messages.callbacks",
        "EvaluationError": "evaluator.evaluate",
        "ExperimentConfig": "config.schema",
        "FolderOwnedError": "storage.ownership",
        "JournalError": "training.journal_database",
        "LaunchError": "deploy.launcher",
        "LearnResult": "policy.base",
        "MainThreadError": "client.api",
        "MayChange": "config.section",
        "NetworkPolicy": "policy.acting.torch_outputs",
        "NoCurveError": "wire.keys.pair",
        "NotShippedError": "storage.bucket.address",
        "ObservationSpec": "policy.spaces",
        "Policy": "policy.base",
        "ReanalyzedColumns": "config.declaration",
        "Reanalyzer": "policy.base",
        "ReanalyzingAlgorithm": "policy.base",
        "ReanalyzingEntry": "policy.entry",
        "RefusedError": "wire.conversation",
        "RunFolderError": "storage.existing_folder",
        "Segments": "config.declaration",
        "Sequences": "config.declaration",
        "Setup": "policy.entry",
        "SmallBufferError": "policy.row_plan",
        "Started": "wire.messages.callbacks",
        "StateMismatchError": "policy.saved_state",
        "Steps": "config.declaration",
        "TrainingFailedError": "client.api",
        "TrainingResult": "client.api",
        "UnknownAlgorithmError": "policy.algorithms",
        "UnreachableError": "wire.conversation",
        "Unrolls": "config.declaration",
        "UnsupportedReuseError": "policy.row_plan",
        "UnsupportedSpaceError": "environments.errors",
        "UnusableError": "client.checking",
        "UserCodeError": "config.user_code",
        "UserExitError": "config.errors",
        "launch": "client.api",
        "load_action": "policy.files.functions",
        "load_policy": "policy.files.functions",
        "load_value": "policy.files.functions",
        "run_context": "runner.custom_loop",
        "train": "client.api",
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
