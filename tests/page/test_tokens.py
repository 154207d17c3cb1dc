"""Which link opens a page: tokens follow from a key, differ by right, and are compared whole."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from remuda.page.process import Tokens, link
from remuda.wire.keys.pair import new_pair


def test_they_stay_with_the_key_and_change_with_it() -> None:
    key = new_pair("operator")
    assert Tokens.of(key) == Tokens.of(key)
    others = {*vars(Tokens.of(new_pair("operator"))).values(), *vars(Tokens.of(key)).values()}
    assert len(others) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in others)
    assert Tokens.fresh() != Tokens.fresh()


def test_neither_key_nor_token_is_in_their_text() -> None:
    key = new_pair("operator")
    tokens = Tokens.of(key)
    assert tokens.viewer not in repr(tokens)
    assert tokens.operator not in repr(tokens)
    assert key.secret.hex() not in tokens.viewer


def test_a_header_gives_the_right_of_its_token() -> None:
    tokens = Tokens.fresh()
    assert tokens.right(f"Bearer {tokens.viewer}") == "viewer"
    assert tokens.right(f"bearer  {tokens.operator} ") == "operator"


@pytest.mark.parametrize("change", [lambda text: "", lambda text: text[:-1], lambda text: text + "A", str.swapcase])
def test_anything_else_gives_none(change: object) -> None:
    assert callable(change)
    tokens = Tokens.fresh()
    assert tokens.right(f"Bearer {change(tokens.operator)}") is None
    for header in (None, "", tokens.operator, f"Basic {tokens.operator}", "Bearer", "Bearer \udcff"):
        assert tokens.right(header) is None


def test_the_token_is_in_the_part_of_a_link_that_no_server_gets() -> None:
    found = urlsplit(link("http://127.0.0.1:8080", "T0ken"))
    assert (found.netloc, found.path, found.query, found.fragment) == ("127.0.0.1:8080", "/", "", "token=T0ken")
