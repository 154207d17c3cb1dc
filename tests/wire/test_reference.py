"""The page that `make site` writes says what the message classes say."""

from __future__ import annotations

import re
from typing import get_args

import msgspec

from remuda.docs.protocol_page import markdown_text
from remuda.wire import messages
from remuda.wire.messages import AnyMessage, Part

PARTS = [value for value in vars(messages).values() if isinstance(value, type) and issubclass(value, Part)]
KINDS: list[type[msgspec.Struct]] = [*get_args(AnyMessage), *(part for part in PARTS if part is not Part)]


def test_every_message_and_part_has_a_chapter_with_every_field() -> None:
    chapters = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", markdown_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(chapters) == len(dict(chapters))
    fields = {name: re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) for name, text in chapters}
    assert fields.items() >= {kind.__name__: list(kind.__struct_fields__) for kind in KINDS}.items()


def test_every_link_inside_the_page_leads_to_a_heading() -> None:
    text = markdown_text()
    headings = {heading.lower() for heading in re.findall(r"^###? (\w+)$", text, flags=re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= headings
