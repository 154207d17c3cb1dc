"""The names of an experiment."""

from __future__ import annotations

from msgspec import Struct


class Identity(Struct, array_like=True):
    """Names, folder and priority of an experiment; only the priority may change. Stored by position: a new field goes
    to the end, with a default."""

    id: str
    name: str
    run_dir: str
    policy_file: str
    priority: int
    """Experiments with a higher priority get workers first."""
    submitted: int
    """Number among all experiments, in order of submission."""
    config_json: str = ""
    """The config of the run, as submitted and resolved; empty once the run is over."""
    policy: str = ""
    """Name of the policy; empty in a run with a single policy."""
    user: str = ""
    """Name of the key that submitted the experiment."""
    project: str = ""
    """As in the config."""
