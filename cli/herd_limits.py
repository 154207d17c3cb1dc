"""`--limit`: how long a coordinator waits for silent workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remuda.cli.errors import InputError

if TYPE_CHECKING:
    from remuda.coordinator.limits import Limits


def herd_limits(given: Sequence[str]) -> Limits:
    """Parse `--limit`. Raises InputError."""
    from remuda.coordinator.limits import Limits

    try:
        return Limits.of(given)
    except ValueError as error:
        raise InputError(f"--limit {error}") from error
