"""Each message goes in the direction that its file is named after."""

from __future__ import annotations

from types import ModuleType
from typing import get_args

from remuda.wire.messages import (
    Ack,
    AnyMessage,
    ClientMessage,
    CoordinatorMessage,
    Message,
    Rejected,
    WorkerMessage,
    from_clients,
    from_workers,
    to_clients,
    to_workers,
)


def defined_in(file: ModuleType) -> set[type[Message]]:
    classes = (value for value in vars(file).values() if isinstance(value, type) and value.__module__ == file.__name__)
    return {kind for kind in classes if issubclass(kind, Message)}


def test_each_union_holds_every_message_of_its_direction() -> None:
    assert set(get_args(WorkerMessage)) == defined_in(from_workers)
    assert set(get_args(ClientMessage)) == defined_in(from_clients)
    assert set(get_args(CoordinatorMessage)) == {*defined_in(to_workers), *defined_in(to_clients), Rejected}
    assert set(get_args(AnyMessage)) == {*get_args(WorkerMessage | CoordinatorMessage | ClientMessage), Ack}
