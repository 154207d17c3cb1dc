"""Reads the text format of Prometheus strictly: whatever the format does not allow is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\]|\\\\|\\n)*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\\\|\\"|\\n)*)"(,|$)')
_VALUE = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf)|NaN")
_ESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


@dataclass
class Read:
    kind: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict[tuple[tuple[str, str], ...], float])

    def value(self, **labels: str) -> float:
        """The sample with these labels."""
        return self.samples[tuple(sorted(labels.items()))]


def read(text: str) -> dict[str, Read]:
    """All families by name. Raises AssertionError where the text breaks a rule of the format."""
    assert text.endswith("\n"), "the last line has no end"
    families: dict[str, Read] = {}
    helps: dict[str, str] = {}
    current = ""
    for line in text[:-1].split("\n"):
        if found := _HELP.fullmatch(line):
            assert found[1] not in helps, f"two helps: {line}"
            helps[found[1]] = unescaped(found[2])
        elif found := _TYPE.fullmatch(line):
            current = found[1]
            assert current not in families, f"two types, or one after its samples: {line}"
            families[current] = Read(found[2], helps[current])
        else:
            found = _SAMPLE.fullmatch(line)
            assert found is not None, f"no sample: {line!r}"
            assert found[1] == current, f"a sample outside its family: {line}"
            labels = _labels(found[2] or "")
            assert labels not in families[current].samples, f"two samples with the same labels: {line}"
            assert _VALUE.fullmatch(found[3]), f"no number: {line}"
            families[current].samples[labels] = float(found[3])
    assert set(helps) == set(families)
    return families


def unescaped(text: str) -> str:
    return re.sub(r'\\[\\n"]', lambda found: _ESCAPED[found[0]], text)


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    labels: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        assert found is not None, f"no label: {text[position:]!r}"
        labels.append((found[1], unescaped(found[2])))
        position = found.end()
    assert len({name for name, _ in labels}) == len(labels), f"a label twice: {text}"
    return tuple(sorted(labels))
