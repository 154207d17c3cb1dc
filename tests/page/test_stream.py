"""The stream sends news once; its ids let another server continue without loss."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.herd import WorkerView, worker_view
from remuda.page.log_files import UnknownLogError
from remuda.page.run_ids import UnknownRunError
from remuda.page.stream import Changes, Follower, LogLines, Message, Position, RunsNews, StreamOptions, worker_summary
from remuda.page.views import Session, Views
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import evaluation, finished_run, interval, say, worker, write_checkpoints, write_series

LOG = "commander/commander_logger.txt"


@pytest.fixture
def views(tmp_path: Path) -> Generator[Views]:
    finished_run(tmp_path / "runs", "a")
    views = Views(tmp_path / "runs", CoordinatorLink(None))
    yield views
    views.close()


@pytest.fixture
def folder(views: Views) -> RunFolder:
    return views.ids.folder("a")


def follower(views: Views, wishes: StreamOptions, id: str | None = None) -> Follower:
    def session() -> Session:
        return views.session("viewer", ())

    return Follower(views, wishes, session, Position.of(id))


def events(messages: list[Message]) -> list[str]:
    return [message.event for message in messages]


def lines(messages: list[Message]) -> str:
    return "".join(message.data.text for message in messages if isinstance(message.data, LogLines))


def test_it_begins_with_what_this_is_and_then_is_quiet(views: Views) -> None:
    stream = follower(views, StreamOptions(run="a", log=LOG, runs=True))
    told = list(stream.news())
    assert events(told) == ["hello", "runs", "run", "points", "checkpoints"]
    (runs,) = (message.data for message in told if isinstance(message.data, RunsNews))
    assert (runs.all, [row.run for row in runs.runs], runs.gone, runs.complete, runs.sweeps) == (
        True, ["a"], [], True, [],
    )  # fmt: skip
    assert list(stream.news()) == []


def test_new_records_checkpoints_and_lines(views: Views, folder: RunFolder) -> None:
    stream = follower(views, StreamOptions(run="a", log=LOG))
    list(stream.news())
    write_series(folder, [evaluation(240.0, 7.0), interval(240.0)])
    write_checkpoints(folder, [9.0, 100.0, 50.0])
    say(folder.commander_log, "<b>one</b>", "two")
    told = list(stream.news())
    assert events(told) == ["points", "checkpoints", "log"]
    assert lines(told).count("\n") == 2
    assert "<b>one</b>" in lines(told)
    assert list(stream.news()) == []


def test_an_id_is_enough_to_go_on(views: Views, folder: RunFolder) -> None:
    wishes = StreamOptions(run="a", log=LOG)
    stream = follower(views, wishes)
    list(stream.news())
    say(folder.commander_log, "one")
    id = list(stream.news())[-1].id
    say(folder.commander_log, "two")
    write_series(folder, [interval(240.0)])
    told = list(follower(views, wishes, id).news())
    assert "two" in lines(told)
    assert "one" not in lines(told)
    assert events(told) == ["hello", "run", "points", "checkpoints", "log"]


@pytest.mark.parametrize("id", [None, "", "x", "1.1.1.1.1", "2.1", "2.-1.0"])
def test_without_an_id_it_begins_at_the_end(views: Views, id: str | None) -> None:
    assert lines(list(follower(views, StreamOptions(run="a", log=LOG), id).news())) == ""


def test_an_id_is_no_way_to_another_file(views: Views) -> None:
    for id in (None, "2.1.1"):
        with pytest.raises(UnknownLogError):
            follower(views, StreamOptions(run="a", log="../config.json"), id)
        with pytest.raises(UnknownRunError):
            follower(views, StreamOptions(run="../a"), id)


def test_small_changes_of_numbers_are_not_told() -> None:
    changes = Changes[WorkerView](lambda view: view.uuid, worker_summary)
    first = worker_view(worker(1), {})
    assert changes.take([first])[0] == [first]
    assert changes.take([replace(first, beat_age_s=4.9, cpu_cores=0.24, rss_bytes=first.rss_bytes + 1)])[0] == []
    for changed in (replace(first, activity="training"), replace(first, incarnation=2), replace(first, cpu_cores=1.0)):
        assert changes.take([changed])[0] == [changed]


def test_a_log_that_was_replaced_is_told_so(views: Views, folder: RunFolder) -> None:
    stream = follower(views, StreamOptions(run="a", log=LOG))
    list(stream.news())
    folder.commander_log.rename(folder.root / "old")
    say(folder.commander_log, "new")
    told = [message.data for message in stream.news() if isinstance(message.data, LogLines)]
    assert [(each.reset, each.begin) for each in told] == [(True, 0)]
    assert told[0].text == folder.commander_log.read_text()


def test_it_is_written_as_event_streams_are() -> None:
    written = Message("2.3.4", "log", {"text": "a\nb"}).encoded().decode()
    assert written == 'id: 2.3.4\nevent: log\ndata: {"text":"a\\nb"}\n\n'
