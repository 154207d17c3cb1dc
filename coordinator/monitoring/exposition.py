"""The text format of Prometheus, version 0.0.4: how samples are written down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Sample:
    """One value, with the labels that tell it from the others of its family."""

    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """All samples of one name. A counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: tuple[Sample, ...]

    @staticmethod
    def single(name: str, kind: Literal["counter", "gauge"], help: str, value: float) -> Family:
        """A family of one sample without labels."""
        return Family(name, kind, help, (Sample(value, {}),))


def text(families: Iterable[Family]) -> str:
    """All families; those without samples are left out."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def _lines(family: Family) -> list[str]:
    head = [f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
    return head + [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples]


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_value(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _help(help: str) -> str:
    return help.replace("\\", "\\\\").replace("\n", "\\n")


def _value(value: str) -> str:
    """A label's value. A half of a surrogate pair, which UTF-8 cannot encode, becomes a question mark."""
    encodable = value.encode(errors="replace").decode()
    return encodable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
