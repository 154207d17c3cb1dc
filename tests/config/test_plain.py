"""How values that JSON does not know are written down."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.config.plain import plain


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
    assert plain([json.dumps, WithAttributes, len]) == ["dumps", "WithAttributes", "len"]


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
    json.dumps(plain(value), allow_nan=False)
