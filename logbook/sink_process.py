"""A user's own log sink in a separate process, which cannot disturb a coordinator.

The parent writes a line of JSON with the facts about the run, then a line for each row. The end of file ends the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import cast

from pydantic import JsonValue

from remuda.config.errors import NoExit
from remuda.config.user_code import user_object
from remuda.logbook.trackers import Service, SinkError
from remuda.wire.child_end import end_within, ended

BROKEN_S = 5.0
"""Most seconds until the end of a process with closed input."""
OUTPUT = "output.txt"
"""File in the sink's folder with the printed output of the sink."""
END_DEADLINE_S = 20.0
"""Most seconds from the last row to the end of the sink."""
_SHOWN_CHARACTERS = 500


class ProcessService:
    """Passes rows on to a sink in another process. Belongs in a separate thread: a slow sink blocks `log`."""

    def __init__(
        self,
        reference: str,
        folder: Path,
        name: str,
        settings: Mapping[str, JsonValue],
        *,
        source_dir: str | None,
        end_deadline_s: float = END_DEADLINE_S,
    ) -> None:
        """Start the process. `reference` is `module:Class`, found in `source_dir`. The process creates the class, an
        implementation of Service, with `folder`, `name` and `settings`."""
        self._output = folder / OUTPUT
        self._end_deadline_s = end_deadline_s
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "remuda.logbook.sink_process"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the run, whose end closes the pipe
            )
        start = {"reference": reference, "source_dir": source_dir, "folder": str(folder), "name": name}
        self._send({**start, "settings": dict(settings), "end_deadline_s": end_deadline_s})

    def log(self, record: Mapping[str, float]) -> None:
        """Pass a row on. Raises SinkError if the process has ended."""
        self._send(dict(record))

    def finish(self) -> None:
        """Wait until the sink has taken every row. Raises SinkError after a failure or the deadline."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if not ended(self._process, self._end_deadline_s + 5.0):
            end_within(self._process, 0.0)
            raise SinkError(f"did not end within {self._end_deadline_s:g} s")
        if self._process.returncode != 0:
            raise SinkError(f"ended with exit code {self._process.returncode}{self._said()}")

    def _send(self, content: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(content).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            end_within(self._process, BROKEN_S)
            raise SinkError(f"the process has ended{self._said()}") from None

    def _said(self) -> str:
        text = self._output.read_text("utf-8", "replace").strip()[-_SHOWN_CHARACTERS:]
        return f": {text}" if text else ""


def _lines(queue: Queue[bytes | None]) -> Iterator[dict[str, JsonValue]]:
    while (line := queue.get()) is not None:
        yield cast("dict[str, JsonValue]", json.loads(line))


def _read(queue: Queue[bytes | None]) -> None:
    """Read to the end of file, also while the sink is busy."""
    for line in sys.stdin.buffer:
        queue.put(line)
    queue.put(None)


def main() -> None:
    """Serve one run."""
    queue: Queue[bytes | None] = Queue(1)  # the parent blocks, and bounds its own queue
    reader = threading.Thread(target=_read, args=(queue,), daemon=True)
    reader.start()
    lines = _lines(queue)
    start = next(lines)
    threading.Thread(target=_end_late, args=(reader, start["end_deadline_s"]), daemon=True).start()
    source_dir = start["source_dir"]
    assert source_dir is None or isinstance(source_dir, str)
    found = user_object(str(start["reference"]), setting="log.sinks", source_dir=source_dir, kind="class")
    with NoExit():
        make = cast("Callable[[Path, str, Mapping[str, JsonValue]], Service]", found)
        sink = make(Path(str(start["folder"])), str(start["name"]), cast("Mapping[str, JsonValue]", start["settings"]))
        for row in lines:
            sink.log(cast("Mapping[str, float]", row))
        sink.finish()


def _end_late(reader: threading.Thread, end_deadline_s: float) -> None:
    """End the process at the deadline after the last row: the parent may be gone."""
    reader.join()
    threading.Event().wait(end_deadline_s)
    os._exit(3)


if __name__ == "__main__":
    main()
