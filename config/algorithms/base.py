"""What the settings of all algorithms have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import JsonValue

from remuda.config.section import Section


class AlgorithmConfig(Section):
    """The section of an algorithm."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType({})
    """Defaults of settings in other sections, by dotted key: `{"learner.batch_size": 256}`. They take the place of the
    schema's defaults; a value in the config file always wins. See remuda.config.defaults."""

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment; None where rows of experience are not segments."""
        return None

    @property
    def reanalyzed_share(self) -> float | None:
        """The share of `Declaration.reanalyzed`; None if the algorithm declares nothing to compute again."""
        return None

    @property
    def learns_from_parts(self) -> bool:
        """`Declaration.learns_from_parts`, of Remuda's own algorithms."""
        return True

    @property
    def needs_whole_batches(self) -> str:
        """Why it does not learn from parts, where that depends on a setting or a declaration; else empty."""
        return ""

    @property
    def lowers_products(self) -> bool:
        """Whether `learner.precision` reaches its networks: whether its learning side has `Algorithm.products`."""
        return True
