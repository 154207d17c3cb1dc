"""Settings of a coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from remuda.coordinator.limits import Limits
from remuda.wire.keys.folder import FOLDER


@dataclass(frozen=True)
class Settings:
    """Settings given at the start of a coordinator."""

    runs_dir: Path
    connection_file: Path
    address: str | None = None
    """Address to listen on, e.g. tcp://127.0.0.1:5555. None: the address of the previous coordinator, if free,
    otherwise any free port of the loopback interface."""
    persistent: bool = False
    """True if the coordinator owns the runs folder and continues the listed runs. Otherwise the coordinator exists only
    for newly submitted runs."""
    limits: Limits = field(default_factory=Limits)
    stream_port: int = 0
    """Port for files of workers without access to the runs folder; 0: any free port."""
    advertised: str | None = None
    """Public host, or host:port, of the coordinator. None: the address of this machine on the route
    to remote machines."""
    http: str | None = None
    """Address of health and metrics, e.g. 9300 or 0.0.0.0:9300. None: not served."""
    own_dir: Path | None = None
    """Folder of a persistent coordinator's list of runs and keys; None: the runs folder. With separate folders, several
    coordinators share a runs folder."""
    hands_over: bool = False
    """On a signal to end, have runs saved and leave the runs to the next start, instead of stopping. The connection
    file stays, so workers wait."""
    idle_end_s: float | None = None
    """Time without unfinished runs until the coordinator ends; None: never."""
    allowed_code: tuple[Path, ...] = ()
    """Folders of allowed code for users other than the coordinator's own."""

    @property
    def keys_dir(self) -> Path:
        """Folder of the keys: in the runs folder, so workers recognize a restarted coordinator. A coordinator without a
        runs folder has separate keys, beside the connection file."""
        return (self.list_dir if self.persistent else self.connection_file.absolute().parent) / FOLDER

    @property
    def list_dir(self) -> Path:
        """Folder owned by a persistent coordinator, with its list of runs."""
        return self.own_dir or self.runs_dir
