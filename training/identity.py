"""The names of an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.training.run_snapshot import IdentitySnapshot


@dataclass
class Identity:
    """Names, folder and priority of an experiment; only the priority may change."""

    id: str
    name: str
    run_dir: str
    policy_file: str
    priority: int
    """Experiments with a higher priority get workers first."""
    submitted: int
    """Number among all experiments, in order of submission."""
    policy: str = ""
    """Name of the policy; empty in a run with a single policy."""

    def snapshot(self, config_json: str) -> IdentitySnapshot:
        """Return the state for a restart, with the submitted config."""
        return IdentitySnapshot(
            self.id,
            self.name,
            self.run_dir,
            self.policy_file,
            self.priority,
            self.submitted,
            config_json,
            self.policy,
        )

    @staticmethod
    def of(snapshot: IdentitySnapshot) -> Identity:
        """The identity of a snapshot."""
        return Identity(
            snapshot.id,
            snapshot.name,
            snapshot.run_dir,
            snapshot.policy_file,
            snapshot.priority,
            snapshot.submitted,
            snapshot.policy,
        )
