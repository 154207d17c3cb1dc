"""The docstring under a setting is found where it stands, and only there."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from remuda.config.descriptions import descriptions
from remuda.config.section import Section


class Horse(Section):
    """A section."""

    legs: int = 4
    """How many it stands on; a foal, too."""
    name: Annotated[str, Field(max_length=20)] = "Rosinante"
    """Of
    two lines."""
    colour: str = "brown"

    @property
    def age(self) -> int:
        """Not a setting."""
        return 3


class Foal(Horse):
    """Derived."""

    legs: int = 5
    """Rare."""
    mother: str = ""
    """The horse."""


def test_of_a_section_and_of_what_it_is_derived_from() -> None:
    assert descriptions(Horse) == {"legs": "How many it stands on; a foal, too.", "name": "Of\ntwo lines."}
    assert descriptions(Foal) == {"legs": "Rare.", "name": "Of\ntwo lines.", "mother": "The horse."}


def test_of_a_section_inside_a_function() -> None:
    class Inside(Section):
        depth: int = 0
        """In metres."""

    assert descriptions(Inside) == {"depth": "In metres."}


def test_a_section_without_a_source_has_none() -> None:
    names: dict[str, type[Section]] = {}
    exec("class Typed(Section):\n    x: int = 0\n    'Lost.'\n", {"Section": Section, "__name__": "typed"}, names)
    assert descriptions(names["Typed"]) == {}
