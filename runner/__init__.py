"""Serial runs, and run folders for custom training loops."""

from remuda.logbook.progress import Rounds
from remuda.runner.custom_loop import Run, run_context

__all__ = ["Rounds", "Run", "run_context"]
