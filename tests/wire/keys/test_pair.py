"""A pair of keys: new every time, and its secret half in no text."""

from __future__ import annotations

import msgspec
import pytest
import zmq
from zmq.utils import z85

from remuda.wire.keys import pair as pair_module
from remuda.wire.keys.pair import KeyName, NoCurveError, new_pair


def test_the_secret_is_in_no_text_of_the_pair() -> None:
    pair = new_pair("a")
    for text in (repr(pair), str(pair), f"{pair}", repr([pair]), repr({"x": pair})):
        for secret in (pair.secret.hex(), repr(pair.secret), z85.encode(pair.secret).decode()):
            assert secret not in text


@pytest.mark.parametrize("name", ["", "-a", "../a", "a\n", "a" * 65])
def test_a_name_cannot_forge_a_line_or_a_path(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(name, KeyName)


def test_without_curve_there_are_no_keys_instead_of_open_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda capability: False)
    with pytest.raises(NoCurveError, match="built without CURVE"):
        pair_module.require_curve()
    with pytest.raises(NoCurveError):
        new_pair("a")
