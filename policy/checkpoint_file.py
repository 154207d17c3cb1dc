"""A checkpoint file as untrusted input: opened without executing anything, checked before it is believed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import torch

FORMAT = 1
"""Raised when a checkpoint's content changes so that older code could not read it."""

_T = TypeVar("_T")


class _Versioned(msgspec.Struct):
    format: int


class CheckpointError(Exception):
    """The checkpoint is missing, damaged, from a newer Remuda, or does not fit; the message names the file."""


def read(path: Path) -> Mapping[str, object]:
    """Open a checkpoint on the CPU. Raises CheckpointError; a hostile file is refused, never executed or unpacked."""
    try:
        _require_plain_archive(path)
        content: object = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint") from None
    except Exception as error:  # torch has a dozen unrelated types for a damaged or forbidden file
        raise CheckpointError(f"{path}: not a checkpoint, or a damaged one: {_first_line(error)}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a checkpoint: it holds a {type(content).__name__}, not a dict")
    data = cast("dict[str, object]", content)
    found = typed(path, data, _Versioned).format
    if found > FORMAT:
        raise CheckpointError(f"{path}: format {found} is newer than this Remuda reads ({FORMAT}); update Remuda")
    return data


def typed(path: Path, data: Mapping[str, object], of_type: type[_T]) -> _T:
    """Take the parts of a checkpoint that are fields of `of_type`, checked. Raises CheckpointError naming the part."""
    try:
        return msgspec.convert(data, of_type)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _require_plain_archive(path: Path) -> None:
    """Refuse what is no zip archive (a bare pickle) or has compressed members (few bytes that unpack to many)."""
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise ValueError("its archive is compressed, which no checkpoint is")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
