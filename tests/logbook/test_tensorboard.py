"""TensorBoard's own reader sees every value once, on the right axis, resumed or not, and one file per folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from remuda.logbook.event_file import read_frames, scalar_event, version_event
from remuda.logbook.lines import Value
from remuda.logbook.tensorboard import EventWriter, hyperparameters, listed
from remuda.tests.imports import imported_by
from remuda.tests.logbook.event_reader import Buckets, curves, films, histograms, texts
from remuda.tests.logbook.event_reader import hyperparameters as hyperparameters_page
from remuda.wire.messages import Counters, Film, Histogram

SETTINGS: dict[str, JsonValue] = {
    "name": "x",
    "seed": 3,
    "policy": {"type": "dqn", "hidden": [8, 8], "double": True, "lambda": None},
    "env": {"id": "A-v1", "kwargs": {}},
    "log": {"interval_train_iters": 100},
    "checkpoint": {"keep": 5},
}


def test_runs_are_compared_by_what_makes_them_learn() -> None:
    assert hyperparameters(SETTINGS) == {
        "seed": 3,
        "policy.type": "dqn",
        "policy.hidden": "[8, 8]",
        "policy.double": True,
        "env.id": "A-v1",
        "env.kwargs": "{}",
    }
    assert ("policy.lambda", None) in listed(SETTINGS)


def run_updates(writer: EventWriter, *train_iters: int) -> None:
    """An update every 8 environment steps and every half second, each with its own value."""
    for i in train_iters:
        writer.scalars("learner", {"total_loss_avg": i / 4}, train_iter=i, env_step=8 * i)
        writer.throughput("buffer", {"pushed_in": 8 * i}, wall_s=i / 2)


def test_values_are_read_back_on_both_axes(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars("collector", {"reward_mean": 9.5, "episode_count": 3}, train_iter=100, env_step=2**40)
    writer.throughput("buffer", {"pushed_in": 64}, wall_s=60.7)
    assert curves(tmp_path) == {
        "collector_iter/reward_mean": [(100, 9.5)],
        "collector_step/reward_mean": [(2**40, 9.5)],
        "collector_iter/episode_count": [(100, 3.0)],
        "collector_step/episode_count": [(2**40, 3.0)],
        "buffer_sec/pushed_in": [(60, 64.0)],
    }, "readable while the writer is open"
    writer.close()


def test_a_second_has_one_point_also_over_a_resume(tmp_path: Path) -> None:
    """The table of a period that a run's end cut short may come in the second of the one before."""
    first = EventWriter(tmp_path)
    for wall_s, rows in ((60.1, 64), (60.9, 3), (120.5, 64), (121.0, 5)):
        first.throughput("buffer", {"pushed_in": rows}, wall_s=wall_s)
    first.close()
    second = EventWriter(tmp_path, resumed=Counters(wall_s=120.8))
    for wall_s, rows in ((120.9, 1), (121.9, 7)):
        second.throughput("buffer", {"pushed_in": rows}, wall_s=wall_s)
    second.close()
    assert curves(tmp_path) == {"buffer_sec/pushed_in": [(60, 64.0), (120, 64.0), (121, 7.0)]}


def test_two_roles_that_are_told_of_in_the_same_second_both_have_their_point(tmp_path: Path) -> None:
    """A short run ends so: its collectors say how they did, then its learner, within one second."""
    writer = EventWriter(tmp_path)
    writer.throughput("vitals", {"collector_work": 0.5}, wall_s=2.2)
    writer.throughput("vitals", {"collector_work": 0.6, "learner_work": 0.75}, wall_s=2.3)
    writer.close()
    assert curves(tmp_path) == {"vitals_sec/collector_work": [(2, 0.5)], "vitals_sec/learner_work": [(2, 0.75)]}


def test_what_is_no_finite_number_is_left_out(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    values: dict[str, Value] = {"a": float("nan"), "b": float("inf"), "c": "text", "d": [1.0], "e": 1e300, "f": -2.0}
    writer.scalars("x", values, train_iter=1, env_step=1)
    writer.scalars("x", {"a": float("nan")}, train_iter=2, env_step=2)
    writer.close()
    assert curves(tmp_path) == {"x_iter/f": [(1, -2.0)], "x_step/f": [(1, -2.0)]}


def test_a_resumed_run_has_each_step_once_in_one_file(tmp_path: Path) -> None:
    first = EventWriter(tmp_path)
    run_updates(first, 10, 20, 30, 40)
    first.close()
    second = EventWriter(tmp_path, resumed=Counters(train_iter=20, env_step=160, wall_s=10.0))
    run_updates(second, 25, 30)
    second.close()
    assert list(tmp_path.iterdir()) == [second.path]
    assert second.path.name > first.path.name, "a TensorBoard that is watching moves on to later names only"
    assert curves(tmp_path) == {
        "learner_iter/total_loss_avg": [(i, i / 4) for i in (10, 20, 25, 30)],
        "learner_step/total_loss_avg": [(8 * i, i / 4) for i in (10, 20, 25, 30)],
        "buffer_sec/pushed_in": [(i // 2, 8.0 * i) for i in (10, 20, 25, 30)],
    }


def test_rewound_it_shows_what_comes_again_once(tmp_path: Path) -> None:
    """A learner has died, and the next one begins at an earlier update; steps and seconds go on."""
    writer = EventWriter(tmp_path)
    run_updates(writer, 10, 20, 30, 40)
    assert writer.newest_step("learner_iter") == 40
    writer.rewind(20)
    assert writer.newest_step("learner_iter") == 20
    assert writer.newest_step("learner_step") == 320
    assert writer.newest_step("evaluator_iter") == -1
    writer.scalars("learner", {"total_loss_avg": 7.5}, train_iter=30, env_step=400)
    writer.close()
    assert list(tmp_path.iterdir()) == [writer.path]
    found = curves(tmp_path)
    assert found["learner_iter/total_loss_avg"] == [(10, 2.5), (20, 5.0), (30, 7.5)]
    assert [step for step, _ in found["learner_step/total_loss_avg"]] == [80, 160, 240, 320, 400]
    assert [step for step, _ in found["buffer_sec/pushed_in"]] == [5, 10, 15, 20]


@given(
    step=st.integers(0, 2**53),
    scalars=st.dictionaries(st.text(st.characters(codec="utf-8")), st.floats(width=32, allow_nan=False), min_size=1),
    cut=st.integers(1, 30),
    flip=st.integers(0, 10_000),
)
def test_framed_events_are_read_back_up_to_damage(step: int, scalars: dict[str, float], cut: int, flip: int) -> None:
    head, event = version_event(1.5), scalar_event(1.5, step, scalars)
    first, second = read_frames(head + event, checked=True)
    assert (first.tag, first.begin, first.end) == ("", 0, len(head))
    assert (second.step, second.tag, second.intact) == (step, next(iter(scalars)), True)
    assert len(list(read_frames((head + event)[:-cut], checked=True))) <= 1
    damaged = bytearray(head + event)
    damaged[flip % len(damaged)] ^= 0x10
    assert sum(frame.intact for frame in read_frames(bytes(damaged), checked=True)) <= 1


def test_settings_stand_on_the_page_of_texts_from_the_update_they_hold_from(tmp_path: Path) -> None:
    first = EventWriter(tmp_path)
    first.config("    seed: 1\n", train_iter=0)
    first.config("    seed: 2\n", train_iter=0)  # a run that is begun again by the next coordinator
    run_updates(first, 10, 20)
    first.close()
    for seed in (3, 4):
        writer = EventWriter(tmp_path, resumed=Counters(train_iter=10, env_step=80, wall_s=5.0))
        writer.config(f"    seed: {seed}\n", train_iter=10)
        writer.close()
    assert texts(tmp_path) == {"config/text_summary": [(0, "    seed: 1\n"), (10, "    seed: 3\n")]}
    assert curves(tmp_path)["learner_iter/total_loss_avg"] == [(10, 2.5)]


def test_how_it_ended_stands_beside_its_settings_once_also_after_a_resume(tmp_path: Path) -> None:
    settings = {"policy.type": "dqn", "learner.learning_rate": 0.5, "buffer.prioritized": True, "policy.hidden": "[8]"}
    for end in (20, 20, 30):
        resumed = None if end == 20 else Counters(train_iter=20, env_step=160, wall_s=10.0)
        writer = EventWriter(tmp_path, resumed=resumed)
        if resumed is not None:
            assert hyperparameters_page(tmp_path) == {}, "it goes on"
        run_updates(writer, end)
        writer.results(settings, {"best_return": 7.0 * end, "last_return": float("nan")}, train_iter=end)
        writer.close()
        assert hyperparameters_page(tmp_path) == settings | {"metrics": ["results/best_return"]}
    assert curves(tmp_path)["results/best_return"] == [(30, 210.0)]


@pytest.mark.processes
def test_writing_events_does_not_load_torch(tmp_path: Path) -> None:
    """The coordinator writes events and must start fast."""
    brought = imported_by(
        "import pathlib, remuda.logbook.book\n"
        "from remuda.logbook.tensorboard import EventWriter\n"
        f"EventWriter(pathlib.Path({str(tmp_path)!r})).close()"
    )
    assert len(list(tmp_path.iterdir())) == 1
    assert brought & {"torch", "matplotlib"} == set()
    assert "tensorboardX" in brought


COUNTS = Histogram(-1.0, [0.0, 1.0, 2.0, 3.0], [0, 2, 5, 0], total=8.5, total_squares=12.0)


FILM = Film(b"GIF89a" + bytes(range(256)) * 400, height=36, width=50)
"""Some 100 KiB: more than what lies between two marks."""


def test_histograms_are_read_back_without_empty_ends(tmp_path: Path) -> None:
    """TensorBoard would stretch the first bucket that holds something over them."""
    writer = EventWriter(tmp_path)
    writer.histograms("actions", {"action": COUNTS, "action_1": Histogram(0.0, [0.5], [7])}, train_iter=20)
    writer.histograms("actions", {}, train_iter=30)
    assert histograms(tmp_path) == {
        "actions_iter/action": [(20, Buckets([0.0, 1.0, 2.0], [2.0, 5.0], 8.5))],
        "actions_iter/action_1": [(20, Buckets([0.0, 0.5], [7.0], 0.0))],
    }, "readable while the writer is open"
    writer.close()


def show_pages(writer: EventWriter, *train_iters: int) -> None:
    for i in train_iters:
        writer.histograms("weights", {"layer": Histogram(0.0, [1.0], [i])}, train_iter=i)
        writer.film(Film(FILM.gif, height=1, width=i), train_iter=i)


def shown(folder: Path) -> tuple[list[tuple[int, float]], list[tuple[int, int]]]:
    """Each step with the value that is of it."""
    counts = [(step, buckets.counts[0]) for step, buckets in histograms(folder)["weights_iter/layer"]]
    return counts, [(step, film.width) for step, film in films(folder)["film_iter/first_episode"]]


def test_a_resumed_run_shows_histograms_and_films_of_each_step_once(tmp_path: Path) -> None:
    """Its checkpoint may be evaluated again; what came after it is shown again. A curve goes on among them."""
    first = EventWriter(tmp_path)
    for i in (10, 20, 30, 40):
        show_pages(first, i)
        first.scalars("collector", {"reward_mean": 1.0}, train_iter=0, env_step=i)
    first.close()
    second = EventWriter(tmp_path, resumed=Counters(train_iter=20, env_step=1_000, wall_s=10.0))
    show_pages(second, 20, 30, 50)
    second.close()
    expected = [(10, 10), (20, 20), (30, 30), (50, 50)]
    assert shown(tmp_path) == (expected, expected)
    assert [step for step, _ in curves(tmp_path)["collector_step/reward_mean"]] == [10, 20, 30, 40]
