"""A pickle that tells when somebody opens it."""

from __future__ import annotations

import pickle  # noqa: TID251 - what must never be opened unasked
from pathlib import Path


class Poison:
    """Unpickling this creates the file `mark` and gives None."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)

    @classmethod
    def as_environment(cls, run: Path) -> Poison:
        """Lie in a folder's vars.pkl."""
        poison = cls(run / "vars.pkl was opened")
        (run / "vars.pkl").write_bytes(pickle.dumps({"env": poison}))
        return poison

    @property
    def worked(self) -> bool:
        """Whether it was unpickled."""
        return self.mark.exists()
