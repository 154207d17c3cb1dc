"""A budget and a log interval in environment steps, as whole rounds of collecting and learning in turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rounds:
    """How many rounds reach a budget, and after how many of them a row is logged.

    It counts like the runners of rlpyt (Stooke and Abbeel 2019), with one difference: they round the budget down to
    whole rounds before they round it up to a row, and so may stop before it is reached. Here it is always reached.
    """

    env_steps: int
    """Steps of all environments of all workers together in one round."""
    per_row: int
    """Rounds from one row to the next: the interval rounded down, at least one."""
    total: int
    """Rounds that reach the budget; the last of them ends with a row."""

    @classmethod
    def of(cls, *, budget_env_steps: int, interval_env_steps: int, round_env_steps: int) -> Rounds:
        """All in environment steps. Raises ValueError for what is not positive."""
        if min(budget_env_steps, interval_env_steps, round_env_steps) < 1:
            raise ValueError(
                f"a budget of {budget_env_steps}, an interval of {interval_env_steps} and rounds of {round_env_steps} "
                "environment steps: all must be positive"
            )
        per_row = max(interval_env_steps // round_env_steps, 1)
        rows = -(-budget_env_steps // (per_row * round_env_steps))
        return cls(round_env_steps, per_row, rows * per_row)

    @property
    def interval_env_steps(self) -> int:
        """Environment steps from one row to the next."""
        return self.per_row * self.env_steps

    def ends_with_row(self, number: int) -> bool:
        """Whether a row is due after round `number`, counted from 1."""
        return number % self.per_row == 0
