"""Fills the files of `templates/`, in which `@{name}` stands for a value."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = Path(__file__).parent / "templates"
_PLACE = re.compile(r"@\{([a-z_]+)\}")


def filled(name: str, **values: str) -> str:
    """The text of the template `name` with these values. Raises KeyError for one that is missing, ValueError for one
    that the template has no place for."""
    template = (_FOLDER / name).read_text(encoding="utf-8")
    unknown = sorted(values.keys() - set(_PLACE.findall(template)))
    if unknown:
        raise ValueError(f"{name} has no place for {', '.join(unknown)}")
    return _PLACE.sub(lambda place: values[place[1]], template)
