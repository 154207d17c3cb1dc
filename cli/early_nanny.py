"""The nanny of `remuda launch`, started before anything else: it needs longer than all that the command does before."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only a launch needs it
    from remuda.deploy.nanny_process import NannyProcess

_STARTS_NOTHING = {"-h", "--help", "--dry-run"}


@contextmanager
def early_nanny(arguments: Sequence[str]) -> Generator[NannyProcess | None]:
    """Yield a nanny that imports what workers need, if these are arguments of a launch, and end it after the body.

    They are not checked yet: a launch that is refused, or goes elsewhere than on this machine, ends it sooner."""
    if arguments[:1] != ["launch"] or _STARTS_NOTHING & set(arguments):
        yield None
        return
    from remuda.deploy.nanny_process import NannyProcess

    with NannyProcess() as nanny:
        yield nanny
