"""docs/protocol.md, written from the message classes: `python -m remuda.wire.reference > docs/protocol.md`."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator
from typing import Annotated, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import numpy as np
from msgspec import NODEFAULT, Meta

from remuda.wire import codec, connections, sockets
from remuda.wire.answers import REPLIES, RESULTS, Kind
from remuda.wire.channel import NOT_RESENT, Channel
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Message,
    Part,
    from_clients,
    from_workers,
    parts,
    to_anybody,
    to_clients,
    to_workers,
)

_SECTIONS = {
    "Worker to coordinator": from_workers,
    "Coordinator to worker": to_workers,
    "Client to coordinator": from_clients,
    "Coordinator to client": to_clients,
    "Coordinator to either, and both ways": to_anybody,
}
_FILES = (parts, *_SECTIONS.values())
_StructT = TypeVar("_StructT", bound=msgspec.Struct)
_NAMED = ("Count", "Uuid", "ShortText", "LongText", "PathText", "FileName", "Finite", "Seconds")
_WORDS: dict[object, str] = {
    int: "integer",
    float: "number",
    str: "text",
    bytes: "bytes",
    bool: "true or false",
    types.NoneType: "null",
}

_OPENING = """\
<!-- Written by `python -m remuda.wire.reference`; edit wire/messages/ and wire/reference.py instead. -->
# Protocol

Version {version}. A worker (collector, evaluator, learner) or a client talks to its coordinator over one ZeroMQ
connection: the coordinator binds a ROUTER socket, everybody else connects a DEALER. Nobody else is connected. What
travels is metadata: experience lies in files in `data/`, policies in `policy/`, weights in `ckpt/`; messages name them.

## How a peer finds the coordinator

The coordinator writes a connection file (JSON, mode 0600, refused when open to others): its address, process, host,
id and protocol version. It binds a free port of 127.0.0.1 unless told otherwise. A worker's socket identity is
`<uuid>:<incarnation>:<process>:<session>`, the last two new for each process and connection of it; a client's is
`client:<uuid>`. A worker whose identity differs from its Register is refused. There is no authentication and no
encryption yet: whoever reaches the port may speak.

## Frames

| frame | holds | at most |
|---|---|---|
| 0 | the letter `R` and one byte, the protocol version | 2 bytes |
| 1 | the envelope in MessagePack | see below |
| 2 … | one numpy array each: its bytes, C order, little-endian | see below |

| who says it | header | arrays |
|---|---|---|
{limits}

A larger message is dropped by its size, before it is understood, and its connection is closed. A connection is closed,
too, while more than {inbound_mib} MiB of it wait to be taken ({inbound_worker_mib} MiB of a registered worker: a
message that never ends, or many large ones) or {outbound_mib} MiB wait to be read ({outbound_worker_mib} MiB by a
registered worker), and when nothing was said over it for {first_word:g} s. Who is still there connects again.

In frame 1 an array is `[which of the array frames, dtype, shape]`. Every field is checked against its type below; an
unknown field, message or dtype, a number out of range, an array frame that is used twice or not at all makes the whole
message malformed. Malformed messages are dropped, and said where the process logs. `tests/wire/test_codec.py` has the
bytes of examples, and feeds the decoder garbage.

## Envelope

An array of four: `[id, reply_to, floor, message]`; the first three are each a `Count` (see [Types](#types)).

| place | meaning |
|---|---|
| `id` | counts up from 1 with every message that is resent; 0 for what is not |
| `reply_to` | the other end's message that this one answers, and so acknowledges; 0 none |
| `floor` | the sender's oldest id that is not acknowledged: answers to older ones may be forgotten |
| `message` | a map; `type` is its class name |

## Delivery: each message once, and in order

* **Resent.** A message with an id is sent again, along with all later ones, until it is acknowledged: after
  {resend:g} s, then after pauses that double up to {resend_max:g} s; they start over once the oldest is through.
* **Acknowledged.** By an Ack or by the reply that carries `reply_to`. Whoever receives a message again does not handle
  it again, but repeats the answer.
* **In order.** A message that overtook another is treated as lost, and so comes again; so is one that is {window} or
  more ahead of the oldest unacknowledged one. Replies may overtake.
* **Not resent**: {not_resent}. The next one of the kind says the same or more.
* **Fresh start.** Ids belong to one connection: a new one has a new identity, and both ends count from 1.
* **Not registered.** A worker the coordinator does not know (any more) gets `Rejected(code="unknown")` for all it says,
  instead of an acknowledgement, and so registers over a new connection. Only its ChunkReady, WorkerFailed and Bye are
  taken from it all the same.

Above that, effects are idempotent by themselves: a chunk is counted by its ChunkId (worker, incarnation, sequence), a
grant of credit never falls, a BatchRequest has a number and is answered in order of it, and everything about work names
its lease, so news of a lease that is over are dropped. Only chunks of an old lease still count.

`tests/wire/test_channel.py` loses, repeats and reorders envelopes at random; `tests/coordinator/test_state.py` does it
to whole experiments.

## Silence

`Registered` says how often to beat and after how much silence to give up. A second thread sends the beats while the
first one computes. A worker or client that hears nothing for {silence:g} s (or three beats) connects again
under the same identity: something between may keep the connection and swallow what passes. The operating system drops
connections to hosts that have vanished. Nothing is lost by either. Every request of a client has a deadline. What
follows from each silence is in [failure-model.md](failure-model.md).

Sending never blocks: a message beyond {high_water} that wait for one peer is dropped and, if resent, comes again.

## Versions

Frame 0, the order of the envelope's fields and the message `Rejected` never change. A peer of another
version is answered with `Rejected(code="protocol")` in its own version, and exits with code 3. Every change of a
message raises the version; there is no negotiation.

## Types
"""


def markdown_text() -> str:
    """docs/protocol.md: an introduction, an overview, and a table per message."""
    lines = [_opening(), *_types(), "", *_overview()]
    docs = {key: text for file in _FILES for key, text in _documented(ast.parse(inspect.getsource(file)))}
    for section, file in _SECTIONS.items():
        lines += ["", f"## {section}"]
        for kind in _defined(file, Message):
            lines += ["", f"### {kind.__name__}", "", _prose(kind), "", _conduct(kind), *_fields(kind, docs)]
    lines += ["", "## Parts", "", "Pieces of messages; never sent alone."]
    for part in (part for file in _FILES for part in _defined(file, Part)):
        lines += ["", f"### {part.__name__}", "", _prose(part), *_fields(part, docs)]
    return "\n".join(lines) + "\n"


def _opening() -> str:
    channel = inspect.signature(Channel).parameters
    return _OPENING.format(
        version=PROTOCOL_VERSION,
        limits="\n".join(_limits()),
        inbound_mib=connections.MOST_OF_STRANGERS_BYTES >> 20,
        inbound_worker_mib=connections.MOST_OF_WORKERS_BYTES >> 20,
        outbound_mib=connections.MOST_FOR_STRANGERS_BYTES >> 20,
        outbound_worker_mib=connections.MOST_FOR_WORKERS_BYTES >> 20,
        first_word=connections.FIRST_WORD_S,
        resend=channel["resend_s"].default,
        resend_max=channel["resend_max_s"].default,
        window=f"{channel['window'].default:,}",
        not_resent=", ".join(_link(kind) for kind in NOT_RESENT),
        silence=sockets.SILENCE_S,
        high_water=f"{sockets.HIGH_WATER_MESSAGES:,}",
    )


def _limits() -> Iterator[str]:
    kinds = (
        ("the coordinator", codec.OF_COORDINATORS),
        ("a registered worker", codec.OF_WORKERS),
        ("a client, or a worker that is not registered", codec.OF_STRANGERS),
    )
    for name, limits in kinds:
        arrays = f"{limits.arrays} of {limits.array_bytes >> 20} MiB" if limits.arrays else "none"
        yield f"| {name} | {limits.header_bytes >> 20} MiB | {arrays} |"


def _types() -> list[str]:
    lines = ["| name | meaning |", "|---|---|"]
    return lines + [f"| `{name}` | {_annotated(getattr(parts, name))} |" for name in _NAMED]


def _overview() -> list[str]:
    lines = ["## Overview", "", "| message | goes | resent | replied with | leads to |", "|---|---|---|---|---|"]
    for section, file in _SECTIONS.items():
        for kind in _defined(file, Message):
            resent = "no" if kind in _UNNUMBERED else "yes"
            lines.append(
                f"| {_link(kind)} | {section} | {resent} | {_replies(kind)} | {_links(RESULTS.get(kind, ()))} |"
            )
    return [*lines, "", "Replies have no id of their own: they come again when their question does."]


_REPLIES = {reply for replies in REPLIES.values() for reply in replies}
_UNNUMBERED = {*NOT_RESENT, *_REPLIES}


def _defined(file: types.ModuleType, base: type[_StructT]) -> list[type[_StructT]]:
    """The messages, or the parts, that a file defines, in its order."""
    classes = (value for value in vars(file).values() if isinstance(value, type) and value.__module__ == file.__name__)
    return [value for value in classes if issubclass(value, base) and value is not base]


def _conduct(kind: Kind) -> str:
    questions = [question for question, replies in REPLIES.items() if kind in replies]
    if questions:
        repeated = ". Not resent." if kind in NOT_RESENT else "; repeated whenever that is."
        return f"*Reply to {_links(questions)}{repeated}*"
    if kind in NOT_RESENT:
        reply = f" Replied with {_links(REPLIES[kind])}." if kind in REPLIES else ""
        return f"*Not resent.{reply}*"
    results = f" Leads to {_links(RESULTS[kind])}." if kind in RESULTS else ""
    return f"*Resent until acknowledged, by {_replies(kind)}.{results}*"


def _replies(kind: Kind) -> str:
    if kind in _UNNUMBERED:
        return _links(REPLIES.get(kind, ()))
    return _links(REPLIES.get(kind, (Ack,)))


def _links(kinds: tuple[Kind, ...] | list[Kind]) -> str:
    return " or ".join(_link(kind) for kind in kinds)


def _link(kind: type) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def _prose(kind: type) -> str:
    return _one_line(kind.__doc__ or "")


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- fields ---------------------------------------------------------------------------------------------------------


def _fields(kind: type[msgspec.Struct], docs: dict[tuple[str, str], str]) -> list[str]:
    fields = msgspec.structs.fields(kind)
    if not fields:
        return []
    lines = ["", "| field | type | meaning |", "|---|---|---|"]
    for field in fields:
        default = "" if field.default is NODEFAULT else f"; default {_default(field.default)}"
        default = "; default empty" if field.default_factory is not NODEFAULT else default
        meaning = _one_line(docs.get((kind.__name__, field.name), ""))
        lines.append(f"| `{field.name}` | {_type(field.type)}{default} | {meaning} |")
    return lines


def _default(value: object) -> str:
    if isinstance(value, Part):
        return "all zero"
    return f"`{msgspec.json.encode(value).decode()}`"


def _type(hint: object) -> str:
    for name in _NAMED:
        if hint == getattr(parts, name):
            return f"`{name}`"
    if hint in _WORDS:
        return _WORDS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(hint)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(choice) for choice in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"map of text to {_type(arguments[1])}"
    if origin is np.ndarray:
        return f"array of {np.dtype(get_args(arguments[1])[0]).name}"
    assert isinstance(hint, type), f"no words for {hint}"
    assert issubclass(hint, Part), f"no words for {hint}"
    return _link(hint)


def _annotated(hint: object) -> str:
    """A type with limits: `integer, 0 … 2^53`."""
    base, meta = get_args(hint)
    assert isinstance(meta, Meta)
    limits: list[str] = []
    if meta.ge is not None:
        limits.append(f"{meta.ge} … {'2^53' if meta.le == 2**53 else meta.le}")
    if meta.max_length is not None:
        unit = {str: " characters", bytes: ""}.get(base, " entries")
        limits.append(f"{meta.min_length or 0} … {meta.max_length:,}{unit}")
    if meta.pattern is not None:
        limits.append(f"matching `{meta.pattern}`")
    return ", ".join([_type(base), *limits])


def _documented(module: ast.Module) -> Iterator[tuple[tuple[str, str], str]]:
    """The strings under the fields, by class and field; Python itself forgets them."""
    for node in module.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                    yield (node.name, name), doc
                case _:
                    pass


if __name__ == "__main__":
    print(markdown_text(), end="")
