"""What others find of a coordinator in files: its connection file, and its token in the runs folder."""

from __future__ import annotations

import contextlib
import os
import platform

from remuda.coordinator.settings import Settings
from remuda.storage.folder_token import FolderToken
from remuda.wire import connection_file
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError
from remuda.wire.keys.folder import KeysFolder
from remuda.wire.messages import PROTOCOL_VERSION


class Presence:
    """Written when the coordinator begins, and removed at its end."""

    def __init__(self, settings: Settings, id: str) -> None:
        """Nothing is written."""
        self._settings, self._id = settings, id
        self.token = FolderToken(settings.runs_dir, id)

    def put_token(self) -> None:
        """Put the token into the runs folder, where it outlives a restart, in place of the former coordinator's.

        If that one was killed, its connection file is still there; this process owns now what it owned. Raises
        OSError."""
        if not self._settings.persistent:
            return
        with contextlib.suppress(ConnectionFileError):
            former = connection_file.read(self._settings.connection_file).coordinator
            FolderToken(self._settings.runs_dir, former).remove()
        self.token.write()

    def put_connection_file(self, address: str, epoch: int, keys: KeysFolder) -> None:
        """From now on it is found. Raises OSError."""
        connection_file.write(
            self._settings.connection_file,
            ConnectionFile(
                coordinator=self._id,
                address=address,
                protocol=PROTOCOL_VERSION,
                host=platform.node(),
                pid=os.getpid(),
                epoch=epoch,
                server_key=keys.server.public,
                keys_dir=str(keys.path.absolute()),
                runs_dir=str(self._settings.runs_dir.absolute()),
            ),
        )

    def remove_connection_file(self) -> None:
        """Unless another coordinator has put its own there."""
        path = self._settings.connection_file
        with contextlib.suppress(ConnectionFileError):
            if connection_file.read(path).coordinator == self._id:
                path.unlink(missing_ok=True)
