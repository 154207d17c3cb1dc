"""What a page answers to those who read: each path, what it takes, and the view that it shows."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from remuda.page import log_files, settings
from remuda.page.curves import Quantity
from remuda.page.pyramid import MOST_BUCKETS
from remuda.page.query import InvalidError, Query
from remuda.page.views import MOST_CURVES, Views

MOST_POINTS = 1_000
MOST_CHARTS = 12
LONGEST_SEARCH = 200
_ALL_LOGS = "*"

Read = Callable[[Views, Query], object]


class LogList(Struct, frozen=True):
    """The logs of a run."""

    files: list[log_files.LogFile]


class Example(Struct, frozen=True):
    """A config to begin with."""

    name: str
    text: str


class Examples(Struct, frozen=True):
    """All of them."""

    examples: list[Example]


def _curves(views: Views, query: Query) -> object:
    x, names = query.optional("x") or "env_step", query.some("y", most=MOST_CHARTS)
    points = query.whole("points", 400, least=2, most=MOST_POINTS)
    return views.curves(query.texts("run", most=MOST_CURVES), [Quantity(y, x) for y in names], points)


def _timeline(views: Views, query: Query) -> object:
    buckets = query.whole("buckets", 200, least=1, most=MOST_BUCKETS)
    from_s, to_s = query.seconds("from_s", 0.0), query.seconds("to_s", float("inf"))
    return views.timeline(query.text("run"), buckets, from_s, to_s)


def _log(views: Views, query: Query) -> object:
    try:
        return _log_part(views, query)
    except FileNotFoundError:
        raise
    except OSError as error:  # a link, or one that others may not read
        raise log_files.UnknownLogError(f"it cannot be read: {error.strerror}") from error


def _log_part(views: Views, query: Query) -> object:
    folder, file = views.ids.folder(query.text("run")), query.text("file")
    before, wanted = query.offset("before"), query.optional("search")
    if not wanted:
        if file == _ALL_LOGS:
            raise InvalidError("file=*: all logs are only searched; add search=TEXT")
        lines = query.whole("lines", 500, least=1, most=log_files.MOST_LINES)
        return log_files.read_part(folder.log, file, before=before, after=query.offset("after"), lines=lines)
    if len(wanted) > LONGEST_SEARCH:
        raise InvalidError(f"search: longer than {LONGEST_SEARCH} characters")
    if file == _ALL_LOGS:
        if before is not None:
            raise InvalidError("before: a search of all logs cannot be continued; name one log")
        return log_files.search_all(folder.log, wanted, case=query.flag("case"))
    return log_files.search(folder.log, file, wanted, before=before, case=query.flag("case"))


def _settings(views: Views, query: Query) -> object:
    return views.settings(query.some("run", most=settings.MOST_RUNS))


def _compared(views: Views, query: Query) -> object:
    return views.compared(query.texts("run", most=MOST_CURVES), query.optional("sweep"))


def _examples(views: Views, query: Query) -> object:
    return Examples([Example(name, text) for name, text in views.examples()])


READS: dict[str, Read] = {
    "/api/herd": lambda views, query: views.herd(),
    "/api/queue": lambda views, query: views.queue(),
    "/api/runs": lambda views, query: views.runs(),
    "/api/run": lambda views, query: views.run(query.text("run")),
    "/api/curves": _curves,
    "/api/metrics": lambda views, query: views.metrics(query.texts("run", most=MOST_CURVES)),
    "/api/timeline": _timeline,
    "/api/logs": lambda views, query: LogList(views.logs(query.text("run"))),
    "/api/log": _log,
    "/api/checkpoints": lambda views, query: views.checkpoints(query.text("run")),
    "/api/config": _settings,
    "/api/compare": _compared,
    "/api/examples": _examples,
}
"""By path. The answers become JSON."""
