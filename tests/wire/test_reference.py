"""The page that `make site` writes says what the message classes say."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

import msgspec
import pytest

from remuda.docs.protocol_page import REPLIES, RESULTS, markdown_text
from remuda.wire import messages
from remuda.wire.channel import NOT_RESENT
from remuda.wire.codec import OF_COORDINATORS, OF_STRANGERS
from remuda.wire.messages import AnyMessage, ClientMessage, CoordinatorMessage, Message, Part, WorkerMessage

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


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("BatchRequest", "| `batches` | integer, 1 … 4096 |  |"),
        ("BatchRequest", "| `priorities` | array of float32 | "),
        ("Assign", "| `checkpoint` | `FileName` or null; default `null` | "),
        ("Assign", "| `replay` | list of [IndexedChunk](#indexedchunk); default empty | For a learner"),
        ("Assign", "| `exploration` | map of text to number; default empty |  |"),
        ("Submit", '| `on_exists` | `error` or `resume` or `force` or `rename`; default `"error"` |  |'),
        ("Register", "| `role` | `collector` or `evaluator` or `learner` or `reanalyzer` |  |"),
        ("StopExperiment", "| `now` | true or false; default `false` | Skip the final evaluation. |"),
    ],
)
def test_types_are_words_and_limits(name: str, line: str) -> None:
    assert line in chapter(name)


def test_limits_are_those_of_the_code() -> None:
    text = page()
    assert f"| {OF_COORDINATORS.header_bytes // 2**20} MiB | {OF_COORDINATORS.arrays} of" in text
    assert f"| {OF_STRANGERS.header_bytes // 2**20} MiB | none |" in text
    assert "| `Count` | integer, 0 … 2^53 |" in text
    assert "| `ShortText` | text, 0 … 1,000 characters |" in text


def test_the_direction_is_that_of_the_unions() -> None:
    goes = {kind: row(kind.__name__)[1] for kind in ALL}
    assert {kind for kind, way in goes.items() if way == "Worker to coordinator"} == set(get_args(WorkerMessage))
    assert {kind for kind, way in goes.items() if way == "Client to coordinator"} == set(get_args(ClientMessage))
    assert {kind for kind, way in goes.items() if way.startswith("Coordinator to ")} == {
        *get_args(CoordinatorMessage),
        messages.Ack,
    }
    assert goes[messages.Status] == "Coordinator to client"
    assert goes[messages.Assign] == "Coordinator to worker"


def test_what_is_resent_is_said_alike_in_both_places() -> None:
    replies = {reply for kinds in REPLIES.values() for reply in kinds}
    for kind in ALL:
        resent = kind not in NOT_RESENT and kind not in replies
        assert (row(kind.__name__)[2] == "yes") is resent
        assert ("*Resent until acknowledged" in chapter(kind.__name__)) is resent


def test_docstrings_name_the_answers_of_the_table() -> None:
    for kind in ALL:
        named = re.search(r"Answered by (\w+)(?: or (\w+))?", " ".join((kind.__doc__ or "").split()))
        answers = {answer.__name__ for answer in (*REPLIES.get(kind, ()), *RESULTS.get(kind, ()))}
        if named is not None:
            assert {name for name in named.groups() if name} <= answers, kind.__name__
