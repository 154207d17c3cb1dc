"""Writes the reference of all messages from their classes: `make site`, or `python -m remuda.docs.protocol_page`."""

# ruff: noqa: E501  (lines of the page are at most 120 characters long once they are filled)

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
import numpy as np
from msgspec import NODEFAULT, Meta

from remuda.config.section import docstrings_in
from remuda.wire import codec, connections, messages, sockets, streams
from remuda.wire.channel import NOT_RESENT, Channel
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Message,
    Part,
    callbacks,
    from_clients,
    from_workers,
    parts,
    to_clients,
    to_workers,
)

_SECTIONS = {
    "Worker to coordinator": from_workers,
    "Coordinator to worker": to_workers,
    "Client to coordinator": from_clients,
    "Coordinator to client": to_clients,
    "Coordinator to either, and both ways": parts,
}
_FILES = (parts, callbacks, from_workers, to_workers, from_clients, to_clients)
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

Kind: TypeAlias = type[Message]

REPLIES: dict[Kind, tuple[Kind, ...]] = {
    messages.Register: (messages.Registered, messages.Rejected),
    messages.Beat: (messages.BeatHeard,),
    messages.ChunkReady: (messages.ChunkAccepted,),
    messages.Submit: (messages.Submitted, messages.Rejected),
    messages.StatusRequest: (messages.Status, messages.Rejected),
    messages.StopExperiment: (messages.Done, messages.Rejected),
    messages.Prioritize: (messages.Done, messages.Rejected),
    messages.BillRequest: (messages.Bill, messages.Rejected),
    messages.SetQuota: (messages.Done, messages.Rejected),
    messages.QuotaRequest: (messages.Quotas,),
    messages.LogRequest: (messages.LogText, messages.Rejected),
    messages.Shutdown: (messages.Done,),
}
"""Replies by message. Messages without a reply are acknowledged with an Ack."""

RESULTS: dict[Kind, tuple[Kind, ...]] = {
    messages.Assign: (messages.Ready, messages.WorkerFailed),
    messages.BatchRequest: (messages.Batches,),
    messages.SaveCheckpoint: (messages.CheckpointSaved,),
    messages.Evaluate: (messages.EvaluationDone,),
    messages.Reanalyze: (messages.Reanalyzed, messages.NotReanalyzed),
    messages.CallCallbacks: (messages.CallbacksDecided,),
    messages.Drain: (messages.Drained,),
    messages.Leave: (messages.Bye,),
}
"""Messages that follow later, when the work is done."""

_OPENING = """\
<!-- Written by `python -m remuda.docs.protocol_page`; edit wire/messages/ and docs/protocol_page.py instead. -->
# Protocol

Version {version}. Each worker (collector, evaluator, reanalyzer, inference worker, learner) and each client has one
ZeroMQ connection to its coordinator: the coordinator binds a ROUTER socket, the others connect a DEALER. Messages carry
only metadata: experience is in files in `data/`, policies in `policy/`, weights in `ckpt/`; messages name them. The
only exception are films of evaluations, which are small. Collectors also have a connection to an inference worker, if
the run has some (wire/inference.py). A worker that does not see these files has one more connection, over which they
travel: [Streams](#streams).

## How a peer finds the coordinator

The coordinator writes a connection file (JSON, mode 0600, refused if other users can open it) with its address, public
key, process, host, id and protocol version. By default it binds a free port of 127.0.0.1. A worker's routing id is
`<uuid>:<incarnation>:<process>:<session>`, where the last two are new for each process and each connection; a client's
is `client:<uuid>`. A worker whose routing id differs from its Register is refused.

## Keys

Every connection is encrypted by CURVE, on loopback, too, and each end shows its own key: nobody without the
coordinator's secret key can answer for it, and it lets in only keys of its list `authorized`. ZeroMQ asks it about each
new connection (ZAP, domain `remuda`). Each key has a right. A message that it does not allow is answered with Rejected,
code `forbidden`, before anything is kept of it:

| right | may send |
|---|---|
| viewer | StatusRequest, LogRequest |
| operator | all requests of clients |
| worker | all messages of workers |

A routing id belongs to the name of the key with which it was used first; from others it is ignored. What is attempted
and what happens then is listed in [security.md](security.md).

## Frames

| frame | holds | at most |
|---|---|---|
| 0 | the letter `R` and one byte, the protocol version | 2 bytes |
| 1 | the envelope in MessagePack | see below |
| 2 … | one numpy array each: its bytes, C order, little-endian | see below |

| sender | header | arrays |
|---|---|---|
{limits}

A larger message is dropped before it is decoded, and its connection is closed. A connection is also closed if more than
{inbound_mib} MiB from it wait to be taken ({inbound_worker_mib} MiB from a registered worker), as with a message that
never ends, if {outbound_mib} MiB wait to be read by the peer ({outbound_worker_mib} MiB by a registered worker), or if
nothing arrives within {first_word:g} s after it was made. A peer that is still alive connects again.

In frame 1 an array is `[number of the array frame, dtype, shape]`. Every field is checked against its type below. An
unknown field, message or dtype, a number out of range, or an array frame that is used twice or not at all makes the
whole message malformed. Malformed messages are dropped and logged. `tests/wire/test_codec.py` has the bytes of
examples, and feeds garbage to the decoder.

## Envelope

An array of four: `[id, reply_to, floor, message]`; the first three are each a `Count` (see [Types](#types)).

| place | meaning |
|---|---|
| `id` | counts up from 1 with every message that is resent; 0 for others |
| `reply_to` | id of the other end's message that this one answers and acknowledges; 0: none |
| `floor` | the sender's oldest id that is not acknowledged: answers to older ones need not be kept |
| `message` | a map; `type` is its class name |

## Delivery: each message once, and in order

* **Resent.** A message with an id is sent again, along with all later ones, until it is acknowledged: after
  {resend:g} s, then after pauses that double up to {resend_max:g} s. The pauses start again from the first when the
  oldest message is acknowledged.
* **Acknowledged.** By an Ack or by a reply with `reply_to`. A message that is received again is not handled again; its
  answer is repeated.
* **In order.** A message that overtakes another is treated as lost, so it is sent again; so is one that is {window} or
  more ahead of the oldest unacknowledged one. Replies may overtake.
* **Not resent**: {not_resent}. The next message of the kind has the same content or newer.
* **Fresh start.** Ids belong to one connection: a new one has a new identity, and both ends count from 1.
* **Not registered.** If the coordinator does not know a worker (any more), it answers each of its messages with
  `Rejected(code="unknown")` instead of an acknowledgement, and the worker registers over a new connection. Only its
  ChunkReady, WorkerFailed and Bye are accepted nevertheless.

In addition, effects are idempotent: a chunk is counted by its ChunkId (worker, incarnation, sequence), credit never
falls, a BatchRequest has a number and is answered in order of these numbers, a Reanalyzed counts only as the answer to
an open request, and every message about work names its lease, so messages of a lease that is over are dropped. Only
chunks of an old lease still count.

`tests/wire/test_channel.py` loses, repeats and reorders envelopes at random; `tests/coordinator/test_state.py` does it
to whole experiments.

## Silence

`Registered` says how often to send beats. A second thread sends them while the first one computes. A worker or client
that receives nothing for {silence:g} s (or three beats) connects again with the same identity, since a proxy may keep a
connection open and drop all data. The operating system closes connections to hosts that are gone. Neither loses a
message. Every request of a client has a deadline. [failure-model.md](failure-model.md) says what follows from each
silence.

Sending never blocks: if {high_water} messages wait for one peer, the next one is dropped; if it is reliable, it is sent
again.

## Versions

Frame 0, the order of the envelope's fields and the message `Rejected` never change. A peer of another
version is answered with `Rejected(code="protocol")` in its own version, and exits with code 3. Every change of a
message raises the version; there is no negotiation.

## Types
"""
_STREAMS_OPENING = f"""
## Streams

A worker that does not see the runs folder has a second connection, to the stream server: a process beside the
coordinator, at the coordinator's host and the port that Registered names. It has the coordinator's key, and lets in
only keys with the right worker. On this connection files travel, in both directions; nothing is decided or counted
there. A chunk counts when its worker announces it to the coordinator, as one that lies in `data/` by now.

| frame | holds | at most |
|---|---|---|
| 0 | the letter `S` and one byte, the protocol version | 2 bytes |
| 1 | the message in MessagePack | 16 KiB |
| 2 | of Piece and LogAppend: bytes of a file | {streams.PIECE_BYTES >> 10} KiB |
| 2… | of a Put that brings a whole file: its bytes | {streams.PIECE_BYTES >> 10} KiB each, {streams.WHOLE_BYTES >> 20} MiB \
in {streams.WHOLE_PARTS} frames together |

* **Who may.** The coordinator seals what a worker may bring and fetch under its lease (Assign, `grant`), with a secret
  that follows from its key. A worker shows this Grant with each file. It brings files of its own name alone.
* **Whole or not at all.** The server writes under a temporary name, compares the header with the name and the size, and
  renames. Encryption (CURVE) authenticates each frame, so one that was changed on its way ends the connection, and the
  transfer begins again. Payloads, policies and checkpoints have checksums of their own besides, which their readers
  compare. A policy is opened once, so that one whole publication is sent.
* **Short files at once.** A file of at most {streams.WHOLE_BYTES >> 20} MiB comes with its Put and is answered by Stored: one
  message each way. A longer one is announced by Put, and its pieces come after Begin.
* **Bounded.** Of each longer file at most {streams.WINDOW_BYTES >> 20} MiB are on their way: sent, and not confirmed (Written,
  Took).
* **Again.** After each new connection, and after {sockets.SILENCE_S:g} s of silence where an answer is due, a worker opens its
  transfers again. An upload goes on where the server says, a checkpoint where the worker says, a policy begins again. A
  file that is stored already is Stored once more. What the server does not know, since it was started again, it has the
  worker begin again.
* **Logs.** A worker's log is a file of its own machine; LogAppend says where its bytes belong, and LogHas how much
  there is.
"""


def markdown_text() -> str:
    """Returns the page: an introduction, an overview, and a table per message."""
    lines = [_opening(), *_types(), "", *_overview()]
    for section, file in _SECTIONS.items():
        lines += ["", f"## {section}"]
        for kind in _defined(file, Message):
            lines += ["", f"### {kind.__name__}", "", _prose(kind), "", _conduct(kind), *_fields(kind)]
    lines += _streams()
    lines += ["", "## Parts", "", "Pieces of messages; never sent alone."]
    for part in (part for file in _FILES for part in _defined(file, Part)):
        lines += ["", f"### {part.__name__}", "", _prose(part), *_fields(part)]
    return "\n".join(lines) + "\n"


def _streams() -> list[str]:
    lines = [_STREAMS_OPENING.rstrip()]
    for kind in _defined(streams, streams.StreamMessage):
        lines += ["", f"### {kind.__name__}", "", _prose(kind), *_fields(kind)]
    return lines


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
    return [*lines, "", "Replies have no id: they are repeated when their request is."]


_REPLIES = {reply for replies in REPLIES.values() for reply in replies}
_UNNUMBERED = {*NOT_RESENT, *_REPLIES}


def _defined(file: types.ModuleType, base: type[_StructT]) -> list[type[_StructT]]:
    """The messages (or parts) that a file defines, in its order."""
    classes = (value for value in vars(file).values() if isinstance(value, type) and value.__module__ == file.__name__)
    return [value for value in classes if issubclass(value, base) and value is not base]


def _conduct(kind: Kind) -> str:
    questions = [question for question, replies in REPLIES.items() if kind in replies]
    if questions:
        repeated = ". Not resent." if kind in NOT_RESENT else "; repeated whenever the request is."
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


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    fields, docs = msgspec.structs.fields(kind), docstrings_in(kind.__module__).get(kind.__name__, {})
    if not fields:
        return []
    lines = ["", "| field | type | meaning |", "|---|---|---|"]
    for field in fields:
        default = "" if field.default is NODEFAULT else f"; default {_default(field.default)}"
        default = "; default empty" if field.default_factory is not NODEFAULT else default
        meaning = _one_line(docs.get(field.name, ""))
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
    if origin in (list, tuple):
        return f"list of {' and '.join(_type(one) for one in arguments)}"
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


if __name__ == "__main__":
    print(markdown_text(), end="")
