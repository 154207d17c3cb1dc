"""Addresses of runs in object stores, and the local folders that stand for them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from remuda.config.errors import Error

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}(.+)")
_CACHE = "REMUDA_CACHE_DIR"


class BucketError(Error):
    """The run in the bucket cannot be used, read or written as requested; the text has the reason and the remedy."""


class NotShippedError(Error):
    """The run has ended, and its bucket does not have all of it; the text names the folder that has."""


def address_of(given: str | os.PathLike[str]) -> str | None:
    """Return the address of a run, or of a folder of runs, in an object store; None for an ordinary path. A Path has
    lost one slash of the address, and gets the slash back."""
    found = _ADDRESS.fullmatch(os.fspath(given))
    if found is None:
        return None
    scheme, place = found[1], found[2].rstrip("/")
    if ".." in place.split("/"):
        raise BucketError(f"{os.fspath(given)}: an address has no '..'")
    return f"{scheme}://{'/' if scheme == 'file' else ''}{place.lstrip('/')}"


def local_folder(address: str) -> Path:
    """Return the folder on this machine for this address: below $REMUDA_CACHE_DIR, else the user's cache."""
    scheme, _, place = address.partition("://")
    base = os.environ.get(_CACHE) or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "remuda")
    return Path(os.path.abspath(os.path.expanduser(base))) / scheme / place.lstrip("/")
