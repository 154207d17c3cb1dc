"""Progress of a run, for people: a live view on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol, cast

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from remuda.config.schema import ExperimentConfig
from remuda.config.workers import StopConfig
from remuda.logbook.lines import one_line
from remuda.storage.run_folder import folder_of_policy
from remuda.wire.messages import OVER, ExperimentStatus

PLAIN_INTERVAL_S = 10.0
"""Between two plain lines, to keep log files short."""
PLAIN_NEWS_INTERVAL_S = 2.0
"""Seconds between two plain lines about evaluations: a run may have many evaluations per second."""
NOTEBOOK_INTERVAL_S = 0.5
"""Seconds between two updates in a notebook: an update is a message to the browser."""
NOTEBOOK_COLUMNS = 100


@dataclass(frozen=True)
class Outlook:
    """Progress of a run and the remaining time."""

    done: float
    """0 to 1, by the nearest stop condition except stop_value, which cannot be predicted."""
    left_s: float | None
    """Seconds left at the present speed; None if unknown. The run may end earlier by stop_value."""


def outlook(status: ExperimentStatus, stop: StopConfig) -> Outlook:
    """Estimate progress by the nearest budget: the used share and the time for the rest."""
    shares: list[tuple[float, float | None]] = []
    for value, bound, per_s in (
        (status.env_step, stop.max_env_steps, status.env_steps_per_s),
        (status.train_iter, stop.max_train_iters, status.train_iters_per_s),
        (status.wall_s, stop.max_wall_s, 1.0),
    ):
        if bound is not None:
            left = max(bound - value, 0.0)
            shares.append((min(value / bound, 1.0), left / per_s if per_s > 0 else None))
    known = [left for _, left in shares if left is not None]
    return Outlook(max(share for share, _ in shares), min(known) if known else None)


def log_of_decisions(status: ExperimentStatus, run_dir: Path, *, serial: bool) -> Path:
    """Return the log of a run's decisions; for several policies the log of the first policy."""
    folder = folder_of_policy(run_dir, status.policies[0].name if status.policies else "")
    return folder.serial_evaluator_log if serial else folder.commander_log


def duration(seconds: float | None) -> str:
    """`95 s` as `1:35`; `?` while unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def number(value: float | None) -> str:
    """Format a return with two decimals; `-` for None."""
    return "-" if value is None else f"{value:.2f}"


def plain_line(status: ExperimentStatus, config: ExperimentConfig) -> str:
    """Format a status as one line, for logs and pipes."""
    why = "" if status.waiting_for is None else f" | {status.waiting_for}"
    return one_line(
        f"{status.name}: {status.state} | env_step {status.env_step} ({status.env_steps_per_s:.0f}/s) | "
        f"train_iter {status.train_iter} ({status.train_iters_per_s:.0f}/s) | episode {status.episode} | "
        f"{_strength(status, config)} | "
        f"{_time(status, config)}{why}"
    )


def _ratings(status: ExperimentStatus, config: ExperimentConfig) -> str:
    """Return the ratings of a league for people, `-` before the first evaluation; empty for other runs. Returns against
    opponents that improve as well say nothing of strength."""
    if config.self_play.league is None:
        return ""
    known = {one.name: one.rating for one in status.policies} or {"": status.rating}
    rated = [f"{name} {rating:.1f}".lstrip() for name, rating in known.items() if rating is not None]
    return ", ".join(rated) or "-"


def _strength(status: ExperimentStatus, config: ExperimentConfig) -> str:
    """Return the ratings of a league, or the returns of another run, for people."""
    if ratings := _ratings(status, config):
        return f"rating {ratings}"
    return f"return last {number(status.last_return)} best {number(status.best_return)}"


def _time(status: ExperimentStatus, config: ExperimentConfig) -> str:
    gone = f"{duration(status.wall_s)} gone"
    return gone if status.state in OVER else f"{gone}, at most {duration(outlook(status, config.stop).left_s)} left"


class ProgressView(Protocol):
    """Shows the progress of a run."""

    def update(self, status: ExperimentStatus, now_s: float) -> None:
        """Show the newest status, if due."""
        ...

    def close(self) -> None:
        """End the view when the run is over."""
        ...


class PlainView:
    """Prints a line when the state changes, after an evaluation, and otherwise every few seconds."""

    def __init__(self, config: ExperimentConfig, output: IO[str]) -> None:
        self._config = config
        self._output = output
        self._shown: ExperimentStatus | None = None
        self._shown_s = -math.inf

    def update(self, status: ExperimentStatus, now_s: float) -> None:
        """Print a line, if due."""
        is_news = self._shown is None or status.state != self._shown.state
        if not is_news and now_s - self._shown_s < self._patience_s(status):
            return
        self._shown, self._shown_s = status, now_s
        print(plain_line(status, self._config), file=self._output, flush=True)

    def close(self) -> None:
        """Do nothing: the lines stay."""

    def _patience_s(self, status: ExperimentStatus) -> float:
        evaluated = self._shown is not None and _strength(status, self._config) != _strength(self._shown, self._config)
        return PLAIN_NEWS_INTERVAL_S if evaluated else PLAIN_INTERVAL_S


class LiveView:
    """A small table, redrawn in place."""

    def __init__(self, config: ExperimentConfig, console: Console) -> None:
        self._config = config
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._live.start()

    def update(self, status: ExperimentStatus, now_s: float) -> None:
        """Redraw."""
        self._live.update(picture(status, self._config))

    def close(self) -> None:
        """Keep the last picture on the screen."""
        self._live.stop()


class Displayed(Protocol):
    """Something shown below a notebook cell; see IPython.display.DisplayHandle."""

    def update(self, obj: object, *, raw: bool) -> None:
        """Show `obj` instead."""
        ...


class Display(Protocol):
    """Shows something below a notebook's cell; see IPython.display.display."""

    def __call__(self, obj: object, *, raw: bool, display_id: bool) -> Displayed: ...


class NotebookView:
    """The same table as on a terminal, redrawn in place below a notebook's cell."""

    def __init__(self, config: ExperimentConfig, display: Display) -> None:
        self._config = config
        self._display = display
        self._displayed: Displayed | None = None
        self._shown_s = -math.inf
        self._waiting: ExperimentStatus | None = None
        """The newest status, if not shown yet."""

    def update(self, status: ExperimentStatus, now_s: float) -> None:
        """Redraw, if due."""
        self._waiting = status
        if now_s - self._shown_s >= NOTEBOOK_INTERVAL_S:
            self._shown_s = now_s
            self._show(status)

    def close(self) -> None:
        """Leave the last picture."""
        if self._waiting is not None:
            self._show(self._waiting)

    def _show(self, status: ExperimentStatus) -> None:
        console = Console(file=io.StringIO(), width=NOTEBOOK_COLUMNS, color_system=None, force_jupyter=False)
        with console.capture() as captured:
            console.print(picture(status, self._config))
        shown = {"text/plain": captured.get().rstrip()}
        if self._displayed is None:
            self._displayed = self._display(shown, raw=True, display_id=True)
        else:
            self._displayed.update(shown, raw=True)
        self._waiting = None


def picture(status: ExperimentStatus, config: ExperimentConfig) -> Table:
    """A run as a small table."""
    goal = "" if config.stop.stop_value is None else f"   stop at {config.stop.stop_value:g}"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(Text(one_line(status.name)), Text(one_line(f"{status.state}   {status.run_dir}")))
    table.add_row("env_step", f"{status.env_step:>9,}   {status.env_steps_per_s:>8,.0f}/s")
    table.add_row("train_iter", f"{status.train_iter:>9,}   {status.train_iters_per_s:>8,.0f}/s")
    table.add_row("episode", f"{status.episode:>9,}   policy version {status.policy_version} (lag {status.policy_lag})")
    if ratings := _ratings(status, config):
        table.add_row("rating", Text(one_line(ratings)))
    else:
        table.add_row("return", f"last {number(status.last_return)}   best {number(status.best_return)}{goal}")
    table.add_row("time", _time(status, config))
    if status.waiting_for is not None:
        table.add_row("", Text(one_line(status.waiting_for)))
    table.add_row("budget", ProgressBar(total=1.0, completed=outlook(status, config.stop).done, width=40))
    return table


def open_view(config: ExperimentConfig, output: IO[str] | None = None) -> ProgressView:
    """A live view in a notebook and where `output` (default: standard error) is a terminal, plain lines elsewhere."""
    if output is None and (display := _notebook_display()) is not None:
        return NotebookView(config, display)
    stream = sys.stderr if output is None else output
    if stream.isatty():
        return LiveView(config, Console(file=stream))
    return PlainView(config, stream)


@contextmanager
def shown_progress(config: ExperimentConfig) -> Generator[Callable[[ExperimentStatus], None]]:
    """Yield a function that shows every status of a run."""
    with closing(open_view(config)) as view:
        yield lambda status: view.update(status, time.monotonic())


def _notebook_display() -> Display | None:
    """Return the function to show an object below the running cell; None outside notebooks. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell: object = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:  # no IPython, or IPython in a terminal
        return None
    return cast(Display, import_module("IPython.display").display)
