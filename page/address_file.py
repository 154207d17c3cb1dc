"""Where a coordinator's page was served last: for commands of its user, and for its next start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from remuda.storage.atomic import write_bytes
from remuda.storage.private_file import NotPrivateError, read_private
from remuda.wire.messages import Uuid

FILE = "page.json"
_MODE = 0o600
_MOST_BYTES = 4_096


class Address(Struct, frozen=True):
    """What the file holds."""

    coordinator: Uuid
    """Whose page it is."""
    serving: bool
    """False once it has ended in the usual way."""
    url: Annotated[str, Meta(pattern=r"^http://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}\Z", max_length=300)]


class AddressFile:
    """The file of one folder of keys. It holds no token."""

    def __init__(self, keys_dir: Path) -> None:
        self._path = keys_dir / FILE

    @property
    def address(self) -> Address | None:
        """None if there is none, or if the file is damaged."""
        try:
            return msgspec.json.decode(read_private(self._path, most_bytes=_MOST_BYTES), type=Address)
        except (OSError, NotPrivateError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def port(self) -> int | None:
        """The port of the last page, whether it is served or not."""
        address = self.address
        try:
            return None if address is None else urlsplit(address.url).port
        except ValueError:  # none above 65535
            return None

    def url_of(self, coordinator: str) -> str | None:
        """Where this coordinator serves its page; None if it does not."""
        found = self.address
        return found.url if found is not None and found.serving and found.coordinator == coordinator else None

    def write(self, url: str, coordinator: str, *, serving: bool) -> None:
        """Raises OSError."""
        content = msgspec.json.encode(Address(coordinator, serving, url))
        write_bytes(self._path, content + b"\n", durable=False, mode=_MODE)
