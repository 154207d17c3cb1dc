"""A stream in front of another one looks like that one: descriptor, terminal, encoding."""

from __future__ import annotations

import io
import os
import sys

import pytest

from remuda.logbook.streams import ForwardingStream


def test_it_has_descriptor_terminal_and_encoding_of_the_stream_behind_it() -> None:
    reading, writing = os.openpty()
    with open(writing, "w", encoding="latin-1") as terminal, open(reading, "rb"):
        stream = ForwardingStream(terminal)
        assert (stream.fileno(), stream.isatty(), stream.encoding) == (terminal.fileno(), True, "latin-1")
        assert stream.writable()


def test_a_stream_without_a_descriptor_has_none_through_it_either() -> None:
    stream = ForwardingStream(io.StringIO())
    assert not stream.isatty()
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()


def test_python_code_may_print_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(ForwardingStream):
        text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

    kept = Kept(io.StringIO())
    monkeypatch.setattr(sys, "stdout", kept)
    print("line")
    assert kept.text == "line\n"
