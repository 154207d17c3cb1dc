"""The introduction to streams in the reference of messages, before the tables of their fields."""

from __future__ import annotations

from remuda.wire.sockets import SILENCE_S
from remuda.wire.streams.messages import PIECE_BYTES, WHOLE_BYTES, WHOLE_PARTS, WINDOW_BYTES

OPENING = f"""
## Streams

A worker that does not see the runs folder has a second connection, to the stream server: a process beside the
coordinator, at the coordinator's host and the port that Registered names. It has the coordinator's key, and lets in
only keys with the right worker. On this connection files travel, in both directions; nothing is decided or counted
there. A chunk counts when its worker announces it to the coordinator, as one that lies in `data/` by now.

| frame | holds | at most |
|---|---|---|
| 0 | the letter `S` and one byte, the protocol version | 2 bytes |
| 1 | the message in MessagePack | 16 KiB |
| 2 | of Piece and LogAppend: bytes of a file | {PIECE_BYTES >> 10} KiB |
| 2… | of a Put that brings a whole file: its bytes | {PIECE_BYTES >> 10} KiB each, {WHOLE_BYTES >> 20} MiB \
in {WHOLE_PARTS} frames together |

* **Who may.** The coordinator seals what a worker may bring and fetch under its lease (Assign, `grant`), with a secret
  that follows from its key. A worker shows this Grant with each file. It brings files of its own name alone.
* **Whole or not at all.** The server writes under a temporary name, compares the header with the name and the size, and
  renames. Encryption (CURVE) authenticates each frame, so one that was changed on its way ends the connection, and the
  transfer begins again. Payloads, policies and checkpoints have checksums of their own besides, which their readers
  compare. A policy is opened once, so that one whole publication is sent.
* **Short files at once.** A file of at most {WHOLE_BYTES >> 20} MiB comes with its Put and is answered by Stored: one
  message each way. A longer one is announced by Put, and its pieces come after Begin.
* **Bounded.** Of each longer file at most {WINDOW_BYTES >> 20} MiB are on their way: sent, and not confirmed (Written,
  Took).
* **Again.** After each new connection, and after {SILENCE_S:g} s of silence where an answer is due, a worker opens its
  transfers again. An upload goes on where the server says, a checkpoint where the worker says, a policy begins again. A
  file that is stored already is Stored once more. What the server does not know, since it was started again, it has the
  worker begin again.
* **Logs.** A worker's log is a file of its own machine; LogAppend says where its bytes belong, and LogHas how much
  there is.
"""
