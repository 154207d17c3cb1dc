"""Where a page is served is known to commands of its user, for as long as this coordinator serves it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from remuda.page.process import FILE, AddressFile

ID = "01234567-89ab-4def-8123-456789abcdef"
OTHER = "11234567-89ab-4def-8123-456789abcdef"
URL = "http://127.0.0.1:8080"


def test_it_is_that_of_one_coordinator_while_it_serves(tmp_path: Path) -> None:
    file = AddressFile(tmp_path)
    assert (file.url_of(ID), file.port) == (None, None)
    file.write(URL, ID, serving=True)
    assert (file.url_of(ID), file.url_of(OTHER), file.port) == (URL, None, 8080)
    file.write(URL, ID, serving=False)
    assert file.url_of(ID) is None, "anybody may listen there by now"
    assert file.port == 8080, "for the next start"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "\xff", "[" * 4_000, '{"url":"http://127.0.0.1:8080"}',
        f'{{"coordinator":"{ID}","serving":true,"url":"https://elsewhere/x"}}',
        f'{{"coordinator":"{ID}","serving":true,"url":"http://a b:1"}}',
    ],
)  # fmt: skip
def test_a_damaged_one_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    (tmp_path / FILE).chmod(0o600)
    assert (AddressFile(tmp_path).url_of(ID), AddressFile(tmp_path).port) == (None, None)


def test_one_that_others_may_write_is_none(tmp_path: Path) -> None:
    AddressFile(tmp_path).write(URL, ID, serving=True)
    (tmp_path / FILE).chmod(0o666)
    assert AddressFile(tmp_path).url_of(ID) is None


def test_a_port_that_there_cannot_be_is_none(tmp_path: Path) -> None:
    AddressFile(tmp_path).write("http://127.0.0.1:70000", ID, serving=True)
    assert AddressFile(tmp_path).port is None
