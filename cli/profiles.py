"""The folder for `--profile`: temporary while the run folder is not known yet, then in the run's logs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class ProfileFolder:
    """A folder for profiles; None when none were asked for."""

    folder: Path | None

    def keep_in(self, run_dir: Path, output: IO[str] | None = None) -> None:
        """Move the profiles to log/profile/ of this run, where they replace older ones, and print that to `output`
        (default: standard output)."""
        if self.folder is None:
            return
        target = run_dir / "log" / "profile"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        print(f"profiles: {target}", file=output)


@contextmanager
def profile_folder(asked: bool) -> Generator[ProfileFolder]:
    """Yield a folder that is removed after the body: processes begin to write before there is a run folder."""
    if not asked:
        yield ProfileFolder(None)
        return
    with tempfile.TemporaryDirectory(prefix="remuda-profile-") as folder:
        yield ProfileFolder(Path(folder))
