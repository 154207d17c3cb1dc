"""The stacks of all threads of this process as text, sent by a worker that hangs."""

from __future__ import annotations

import sys
import threading
import traceback


def stacks() -> str:
    """The stacks of all threads, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]: documented for this use, whatever its name
    found = sorted(frames.items(), key=lambda item: item[0] != main)
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)).rstrip()}"
        for ident, frame in found
    )
