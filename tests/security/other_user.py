"""A process that becomes another user, and prints as JSON what that user gets. Only root may start it.

python -P -m remuda.tests.security.other_user look PATH...
python -P -m remuda.tests.security.other_user speak ADDRESS [SERVER_KEY]

It is started by root, because another user may not be able to start this Python, which may lie in somebody's home. It
is not forked from the tests' process: that has threads, and a lock that one of them holds stays locked in the child.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import zmq

from remuda.wire.codec import Envelope, encode
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.keys.pair import new_pair
from remuda.wire.messages import StatusRequest
from remuda.wire.sockets import show_keys

NOBODY = 65_534
SILENCE_MS = 1_000
"""How long an answer would have to come. An honest client gets one within milliseconds."""


def look(path: Path) -> str:
    """Whether it can read the file, or list the folder."""
    try:
        return f"read {os.listdir(path) if path.is_dir() else path.read_bytes()!r}"
    except PermissionError:
        return "refused"


def speak(address: str, server_key: str | None) -> str:
    """Whether a coordinator answers; with a server's key it shows a new key of its own."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    if server_key is not None:
        show_keys(socket, CallerKeys(server_key, new_pair("stranger")))
    socket.connect(address)
    for _ in range(20):
        socket.send_multipart(encode(Envelope(1, 0, 1, StatusRequest())))
    answered = socket.poll(SILENCE_MS)
    context.destroy(linger=0)
    return "answered" if answered else "silence"


def main() -> None:
    """Become the other user, then do what was asked for."""
    _, what, *arguments = sys.argv
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    if what == "look":
        print(json.dumps([look(Path(path)) for path in arguments]))
    else:
        address, *server_key = arguments
        print(json.dumps(speak(address, server_key[0] if server_key else None)))


if __name__ == "__main__":
    main()
