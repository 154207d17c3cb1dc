"""All messages between the coordinator, its workers and its clients: one frozen struct per message.

Each direction has a file, and shared parts have another. Other modules import them from here.

Names are requests (`Register`) or events in the past tense (`ChunkAccepted`). A field with a numpy array is sent as a
separate frame (see codec.py). A worker with a lease works for an experiment; every message about the work names the
lease, so that messages of an older lease are recognised and dropped. Only ChunkAccepted names the chunk instead.
"""

from __future__ import annotations

# ruff: noqa: F403
from remuda.wire.messages.callbacks import *
from remuda.wire.messages.from_clients import *
from remuda.wire.messages.from_clients import ClientMessage
from remuda.wire.messages.from_workers import *
from remuda.wire.messages.from_workers import WorkerMessage
from remuda.wire.messages.parts import *
from remuda.wire.messages.parts import Ack, Rejected
from remuda.wire.messages.to_clients import *
from remuda.wire.messages.to_clients import ToClient
from remuda.wire.messages.to_workers import *
from remuda.wire.messages.to_workers import ToWorker

PROTOCOL_VERSION = 20
"""Increased whenever a message changes; both sides must have the same version."""

CoordinatorMessage = ToWorker | ToClient | Rejected
AnyMessage = WorkerMessage | CoordinatorMessage | ClientMessage | Ack
