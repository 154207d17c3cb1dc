"""How values that JSON does not know are written down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import gymnasium
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.plain import json_text, plain


class WithAttributes:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def __str__(self) -> str:
        return "an object"


class Mute:
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_what_json_holds_stays() -> None:
    value: object = {"a": [1, 2.5, None, True, "text", {"b": [""]}]}
    assert plain(value) == value


def test_collections_are_followed() -> None:
    assert plain((1, [2, (3,)], {"a": (4,)}, {5})) == [1, [2, [3]], {"a": [4]}, [5]]


def test_named_things_become_their_name() -> None:
    assert plain([json.dumps, WithAttributes, len, np.ndarray]) == ["dumps", "WithAttributes", "len", "ndarray"]


def test_a_lambda_has_no_name() -> None:
    text = plain(lambda: 0)
    assert isinstance(text, str)
    assert "<lambda>" in text


def test_objects_show_their_attributes() -> None:
    assert plain(WithAttributes(size=3, inner=WithAttributes(f=len))) == {
        "an object": {"size": 3, "inner": {"an object": {"f": "len"}}}
    }


def test_all_else_becomes_text() -> None:
    assert plain([1j, b"x", float("inf"), WithAttributes()]) == ["1j", "b'x'", "inf", "an object"]
    assert plain({1: 2, None: 3, (4,): 5}) == {"1": 2, "None": 3, "(4,)": 5}


def test_an_object_that_cannot_speak_is_no_failure() -> None:
    assert "Mute object at" in json.dumps(plain([Mute(), {Mute(): Mute()}]))


def test_something_that_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    me = WithAttributes()
    me.__dict__["me"] = me
    assert len(json.dumps(plain([loop, me]))) < 10_000


_odd = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers(), st.just(len), st.just(Mute())
)
_nested: st.SearchStrategy[Any] = st.recursive(
    _odd,
    lambda inner: st.one_of(
        st.lists(inner), inner.map(lambda value: (value,)), st.dictionaries(st.integers() | st.text(), inner),
        inner.map(lambda value: WithAttributes(x=value)),
    ),
)  # fmt: skip


@given(_nested)
def test_never_fails_and_is_strict_json(value: object) -> None:
    """What comes out reads back as it is: no tuple, no number that JSON lacks, no key that is not text."""
    made = plain(value)
    assert json.loads(json.dumps(made, allow_nan=False)) == made


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    names: tuple[str, ...]


def test_numbers_and_small_arrays_of_numpys_become_numbers() -> None:
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.arange(4).reshape(2, 2), "e": np.nan}
    assert plain(value) == {"a": 0.5, "b": 3, "c": True, "d": [[0, 1], [2, 3]], "e": "nan"}
    assert plain(np.zeros((84, 84, 4), np.uint8)) == "uint8 array of shape (84, 84, 4)"
    assert plain(torch.tensor([1.5, 2.0])) == [1.5, 2.0]
    assert plain([np.array("text"), np.array(None), np.array([{1}], object)]) == ["text", None, [[1]]]


def test_what_people_put_into_a_config() -> None:
    value = {
        "actor": torch.nn.Linear,
        "activation": torch.nn.functional.relu,
        "make": gymnasium.make,
        "hidden": (64, 64),
        "device": torch.device("cpu"),
        "where": PurePosixPath("a/b"),
        "colour": Colour.RED,
        "start": Point(1, ("a",)),
        "of": {"c", "a", "b"},
    }
    assert plain(value) == {
        "actor": "Linear",
        "activation": "relu",
        "make": "make",
        "hidden": [64, 64],
        "device": "cpu",
        "where": "a/b",
        "colour": "Colour.RED",
        "start": {"Point(x=1, names=('a',))": {"x": 1, "names": ["a"]}},
        "of": ["a", "b", "c"],
    }


def test_what_is_met_twice_is_written_twice_but_not_inside_itself() -> None:
    shared = [1]
    assert plain([shared, shared]) == [[1], [1]]
    loop: dict[str, object] = {"a": shared}
    loop["loop"] = [loop]
    assert plain(loop) == {"a": [1], "loop": ["<dict>"]}


def test_something_that_would_never_end_is_cut_off() -> None:
    """Each level holds the next one twice: 2 ** 100 values."""
    value: object = 0
    for _ in range(100):
        value = [value, WithAttributes(inner=value)]
    assert len(json.dumps(plain(value))) < 4_000_000


class Endless(dict[str, object]):
    def __getitem__(self, key: object) -> object:
        return Endless()

    def items(self) -> Any:
        raise ValueError("not now")


class Grabby:
    """Has every attribute one asks for, and no good one."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name}")


def test_an_object_that_resists_is_its_text() -> None:
    assert plain([Endless()]) == ["{}"]
    text = plain(Grabby())
    assert isinstance(text, str)
    assert "Grabby object at" in text


def test_an_integer_that_python_will_not_write_is_hexadecimal() -> None:
    assert plain(-(10**5000)) == hex(-(10**5000))
    assert plain(2**100) == 2**100


def test_a_long_text_is_kept_and_the_long_text_of_an_object_is_not() -> None:
    assert plain("x" * 10_000) == "x" * 10_000
    assert plain(b"x" * 10_000) == f"b'{'x' * 1998}…"


def test_the_text_of_it_is_strict_json_sorted_and_indented() -> None:
    assert json_text({"b": float("inf"), "a": ({1, 0},)}) == (
        '{\n    "a": [\n        [\n            0,\n            1\n        ]\n    ],\n    "b": "inf"\n}\n'
    )
