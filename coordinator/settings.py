"""How a coordinator is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from remuda.coordinator.limits import Limits
from remuda.wire.keys.folder import FOLDER


@dataclass(frozen=True)
class Settings:
    """What a coordinator is told when it is started."""

    runs_dir: Path
    connection_file: Path
    address: str | None = None
    """Where to listen, such as tcp://127.0.0.1:5555. None: the address of the coordinator before, if that is free,
    otherwise any free port of the loopback interface."""
    persistent: bool = False
    """Whether it owns the runs folder and continues the runs that it finds there. If not, it exists for the runs that
    it is given."""
    limits: Limits = field(default_factory=Limits)
    stream_port: int = 0
    """Where files travel to and from workers that do not see the runs folder; 0: any free port."""
    advertised: str | None = None
    """The host, or host:port, by which others reach it. None: the address of this machine that leads to others."""
    http: str | None = None
    """Where health and metrics are served, such as 9300 or 0.0.0.0:9300. None: nowhere."""
    own_dir: Path | None = None
    """Where a persistent one keeps its list of runs and its keys; None: in the runs folder. With folders of their own,
    several share a runs folder."""
    hands_over: bool = False
    """What it does when the operating system asks it to end: have its runs saved and leave them to its next start,
    instead of stopping them. Its connection file stays, so that workers wait."""
    idle_end_s: float | None = None
    """It ends by itself when there was no run to work on for this time; None: never."""
    allowed_code: tuple[Path, ...] = ()
    """Folders from which others than its own user may name code in their configs."""

    @property
    def keys_dir(self) -> Path:
        """The folder of its keys: in the runs folder, so that workers know it again when it is started again. One that
        exists for the runs that it is given has keys for itself alone, beside its connection file."""
        return (self.list_dir if self.persistent else self.connection_file.absolute().parent) / FOLDER

    @property
    def list_dir(self) -> Path:
        """The folder that a persistent one owns, with its list of runs."""
        return self.own_dir or self.runs_dir
