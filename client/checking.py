"""Checks of a run beyond its config, before anything is started or written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remuda.config.dump import changed_settings
from remuda.config.errors import Error
from remuda.config.launching import LOCAL
from remuda.config.load import LoadedConfig
from remuda.config.schema import ExperimentConfig
from remuda.storage.existing_folder import OnExists, check

if TYPE_CHECKING:
    from remuda.environments.spaces import Space


class UnusableError(Error):
    """The config is valid, but cannot run here because of its environment, device or weights; the message has the
    reason."""


def check_address(address: str | None, launch_on: str) -> None:
    """Check the launcher of a run at an address. Raises UnusableError for processes on other machines."""
    if address is not None and launch_on != LOCAL:
        raise UnusableError(
            f"{address} is copied from a folder of this machine, and launch.on is {launch_on}: leave out launch.on, or "
            "give a run folder that the engine's machines see"
        )


def check_launch(loaded: LoadedConfig, run_dir: Path, on_exists: OnExists) -> None:
    """Check a run with own workers; devices only for workers on this machine. Raises RunFolderError, and as
    `check_run`."""
    if loaded.config.launch.runs_dir_here:  # elsewhere only the coordinator sees the run folder, and checks it
        check(run_dir, on_exists, mode="parallel")
    if loaded.config.launch.on == LOCAL:
        _check_devices(loaded.config)
    check_run(loaded, run_dir, on_exists)


def check_run(loaded: LoadedConfig, run_dir: Path, on_exists: OnExists) -> None:
    """Build the environment once, and check that the policies can act there and that the initial weights fit, the
    classes of callbacks, and datasets. Raises UnusableError, DatasetError, UserCodeError."""
    from remuda.environments.assignment import configs_of_policies
    from remuda.environments.copies import agents_of, local_copies
    from remuda.environments.errors import EnvironmentBuildError, UnsupportedSpaceError
    from remuda.environments.make import check_tasks
    from remuda.policy.algorithms import UnknownAlgorithmError, make_policy
    from remuda.policy.row_plan import SmallBufferError, check_buffer
    from remuda.policy.spaces import ActionSpec, ObservationSpec

    config, path, source_dir = loaded.config, loaded.path, loaded.config.source_dir
    try:
        configs = configs_of_policies(config, agents_of(config.env, source_dir=source_dir))
        assigned = {name: own.env.agents for name, own in configs.items()}
        copies = local_copies(config.env, assigned, range(1), source_dir=source_dir)
        copies.close()
        groups = [lanes.group for lanes in copies.lanes]
        for own, group in zip(configs.values(), groups, strict=True):
            make_policy(own, ObservationSpec.of(group.observation), ActionSpec.of(group.action))
            check_buffer(own)
            check_tasks(own, (group.observation, group.action))
    except (EnvironmentBuildError, UnsupportedSpaceError, UnknownAlgorithmError, SmallBufferError) as error:
        raise UnusableError(f"{path}: {error}") from error
    if config.callbacks:
        from remuda.learner.callbacks import check_class

        for one in config.callbacks:
            check_class(one, source_dir)
    for own, group in zip(configs.values(), groups, strict=True):
        _check_demonstrations(own, group.observation, group.action, begins=on_exists != "resume")
    if config.env.kind == "pettingzoo":
        return
    observation, action = groups[0].observation, groups[0].action
    if config.collector.dataset is not None:
        from remuda.collector.environments import stored_rows

        stored_rows(config, config.collector.dataset, observation, action)
    if on_exists == "resume":
        _check_resumed(config, run_dir, observation, action)
    if config.learner.initialize_from is not None:
        _check_weights(loaded, run_dir, on_exists, observation, action)


def _check_demonstrations(config: ExperimentConfig, observation: Space, action: Space, *, begins: bool) -> None:
    """Check the datasets that the learner reads, by their first and last episodes: the learner reads the whole, in
    another process. `begins`: at the begin of a run, too. Raises DatasetError and UnsupportedSpaceError."""
    imitates = begins and config.learner.initialize_from_demonstrations is not None
    if not imitates and config.buffer.demonstrations is None:
        return  # the import of torch takes over a second
    from remuda.learner.checkpoint import new_algorithm
    from remuda.learner.demonstrations import check_imitation, demonstrated

    algorithm = new_algorithm(_on_cpu(config), observation, action)
    demonstrated(config, algorithm.observation, algorithm.action, sampled=True)
    if imitates:
        check_imitation(config, algorithm)


def _check_devices(config: ExperimentConfig) -> None:
    devices = {"learner.device": config.learner.device, "collector.device": config.collector.device}
    if config.inference.count != 0:  # 0 is without, whatever the device
        devices["inference.device"] = config.inference.device
    others = {setting: device for setting, device in devices.items() if device != "cpu"}
    if not others:
        return  # the import of torch takes over a second
    from remuda.policy.networks.tensors import DeviceError, usable

    try:
        for setting, device in others.items():
            usable(device, setting=setting)
    except DeviceError as error:
        raise UnusableError(str(error)) from error


def _check_resumed(config: ExperimentConfig, run_dir: Path, observation: Space, action: Space) -> None:
    """After changes of network settings, check that the newest checkpoint fits the network."""
    if not any(line.startswith(("policy.", "env.")) for line in changed_settings(run_dir, config)):
        return  # the import of torch takes over a second
    from remuda.learner.checkpoint import continue_from, new_algorithm
    from remuda.policy.files.checkpoint_file import CheckpointError
    from remuda.policy.files.playable import find_checkpoint
    from remuda.storage.checkpoint_index import CheckpointIndexError

    try:
        continue_from(find_checkpoint(run_dir, "last"), new_algorithm(_on_cpu(config), observation, action), config)
    except (CheckpointError, CheckpointIndexError) as error:
        raise UnusableError(str(error)) from error


def _check_weights(loaded: LoadedConfig, run_dir: Path, on_exists: OnExists, observation: Space, action: Space) -> None:
    """Check the initial weights; only then, since importing torch takes over a second."""
    from remuda.learner.checkpoint import new_algorithm, take_weights
    from remuda.policy.files.checkpoint_file import CheckpointError

    config = loaded.config
    weights = Path(config.learner.initialize_from or "")
    if on_exists != "resume":
        try:
            take_weights(weights, new_algorithm(_on_cpu(config), observation, action))
        except CheckpointError as error:
            raise UnusableError(f"{loaded.path}: {error}") from error
    if on_exists == "force" and weights.is_relative_to(run_dir):
        raise UnusableError(
            f"the weights {weights} are in the folder that --force moves away: copy the file, or choose another run "
            "folder (--on-exists rename)"
        )


def _on_cpu(config: ExperimentConfig) -> ExperimentConfig:
    return config.model_copy(update={"learner": config.learner.model_copy(update={"device": "cpu"})})


def with_agents(config: ExperimentConfig) -> ExperimentConfig:
    """The config with `env.agents`, for `Client.submit`. An environment with several agents is built once. Raises
    EnvironmentBuildError."""
    if config.env.kind != "pettingzoo":
        return config
    from remuda.environments.copies import agents_of

    agents = agents_of(config.env, source_dir=config.source_dir)
    return config.model_copy(update={"env": config.env.model_copy(update={"agents": agents})})
