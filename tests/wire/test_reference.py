"""The page that `make site` writes says what the message classes say."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

import msgspec
import pytest

from remuda.docs.protocol_page import markdown_text
from remuda.wire import messages
from remuda.wire.messages import AnyMessage, Message, Part

ALL: tuple[type[Message], ...] = get_args(AnyMessage)
PARTS = [value for value in vars(messages).values() if isinstance(value, type) and issubclass(value, Part)]


@cache
def page() -> str:
    return markdown_text()


def chapter(name: str) -> str:
    """What the page says between the heading `### name` and the next one."""
    _, _, rest = page().partition(f"\n### {name}\n")
    return re.split(r"\n##+ ", rest)[0]


def row(name: str) -> list[str]:
    """The cells of a message's row in the overview."""
    (line,) = (line for line in page().splitlines() if line.startswith(f"| [{name}](#"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("kind", [*ALL, *(part for part in PARTS if part is not Part)], ids=lambda kind: kind.__name__)
def test_every_message_and_part_has_a_chapter_with_every_field(kind: type[msgspec.Struct]) -> None:
    assert page().count(f"\n### {kind.__name__}\n") == 1
    said = re.findall(r"^\| `(\w+)` \| (.+?) \|", chapter(kind.__name__), flags=re.MULTILINE)
    assert [name for name, _ in said] == list(kind.__struct_fields__)


def test_every_link_inside_the_page_leads_to_a_heading() -> None:
    text = page()
    headings = {heading.lower() for heading in re.findall(r"^###? (\w+)$", text, flags=re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= headings
