"""What an experiment is called."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.training.snapshot import IdentitySnapshot


@dataclass(frozen=True)
class Identity:
    """What an experiment is called and where it lives."""

    id: str
    name: str
    run_dir: str
    policy_file: str
    priority: int
    submitted: int
    """Its place among all, in the order they were submitted in."""

    def snapshot(self, config_json: str) -> IdentitySnapshot:
        """What is needed to go on after a restart, with the config that it was submitted with."""
        return IdentitySnapshot(
            self.id, self.name, self.run_dir, self.policy_file, self.priority, self.submitted, config_json
        )

    @staticmethod
    def of(snapshot: IdentitySnapshot) -> Identity:
        """The one that is remembered so."""
        return Identity(
            snapshot.id, snapshot.name, snapshot.run_dir, snapshot.policy_file, snapshot.priority, snapshot.submitted
        )
