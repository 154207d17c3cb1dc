"""Where a coordinator's page was served last: for commands of its user, and for its next start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from remuda.storage.atomic import write_bytes
from remuda.storage.private_file import NotPrivateError, read_private

FILE = "page.json"
_MODE = 0o600
_MOST_BYTES = 4_096


class _Content(Struct, frozen=True):
    url: Annotated[str, Meta(pattern=r"^http://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}\Z", max_length=300)]


class AddressFile:
    """The file of one folder of keys. It holds no token."""

    def __init__(self, keys_dir: Path) -> None:
        self._path = keys_dir / FILE

    @property
    def url(self) -> str | None:
        """The page's address; None if there is none, or if the file is damaged."""
        try:
            return msgspec.json.decode(read_private(self._path, most_bytes=_MOST_BYTES), type=_Content).url
        except (OSError, NotPrivateError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def port(self) -> int | None:
        """The port in that address."""
        url = self.url
        try:
            return None if url is None else urlsplit(url).port
        except ValueError:  # none above 65535
            return None

    def write(self, url: str) -> None:
        """Raises OSError."""
        write_bytes(self._path, msgspec.json.encode(_Content(url)) + b"\n", durable=False, mode=_MODE)
