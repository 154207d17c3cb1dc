"""The nanny's process, for the starting process: imports modules first, then receives arguments."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import TracebackType

from remuda.wire.child_end import ended
from remuda.worker.process import child_environment

PIPE_OPTION = "--told"
"""The nanny's option for the descriptor of further arguments. The same descriptor is the nanny's lifeline."""
_KILLED_S = 5.0
_PIECE_BYTES = 4_096
_SHOWN_BYTES = 65_536


class NannyProcess:
    """A nanny that may be started before the arguments are known. Meanwhile the nanny imports the workers' modules,
    which takes longer than checking a config and starting a coordinator.

    The nanny holds the reading end of a pipe; only this process has the writing end. The nanny ends when the pipe
    breaks; before the arguments the end has no further effect. A context manager, which ends a running nanny.
    """

    def __init__(self) -> None:
        """Start the process. Raises OSError."""
        reading_end, self._writing_end = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - without a name, so no file is left behind
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "remuda.deploy.nanny", PIPE_OPTION, str(reading_end)],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=child_environment(os.environ),
                pass_fds=(reading_end,),
                start_new_session=True,  # Ctrl-C reaches only the starting process, which then ends the nanny in order
            )
        except OSError:
            self.break_lifeline()
            self._output.close()
            raise
        finally:
            os.close(reading_end)

    def tell(self, arguments: Sequence[str]) -> None:
        """Send the arguments. A dead nanny is handled by its supervisor."""
        line = json.dumps(list(arguments)).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._writing_end, line) :]

    def said(self) -> str:
        """Return the end of the output of the nanny and its workers."""
        output = self._output.fileno()
        begin = max(0, os.fstat(output).st_size - _SHOWN_BYTES)
        return os.pread(output, _SHOWN_BYTES, begin).decode(errors="replace")

    def break_lifeline(self) -> None:
        """End the nanny and its workers by closing the pipe. Safe to call twice."""
        if self._writing_end >= 0:
            os.close(self._writing_end)
            self._writing_end = -1

    def end(self) -> None:
        """End a running nanny at once, and wait. Safe to call twice."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            ended(self.process, _KILLED_S)
        self.break_lifeline()
        self._output.close()

    def __enter__(self) -> NannyProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def read_arguments(lifeline: int) -> list[str] | None:
    """Wait for the arguments, in the nanny's process, and return them; None if the pipe broke first."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(lifeline, _PIECE_BYTES)
        if not piece:
            return None
        line += piece
    return [str(argument) for argument in json.loads(line)]
