"""What people see of a run while it goes on, reckoned by hand."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

from remuda.client.progress import Displayed, LiveView, NotebookView, Outlook, PlainView, open_view, outlook, plain_line
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LeagueConfig, SelfPlayConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import StopConfig
from remuda.tests.client.statuses import status
from remuda.wire.messages import PolicyStatus

CONFIG = ExperimentConfig(
    name="mine",
    env=EnvConfig(id="CartPole-v1"),
    policy=DqnConfig(),
    stop=StopConfig(max_env_steps=10_000, stop_value=475),
)
LEAGUE = CONFIG.model_copy(update={"self_play": SelfPlayConfig(league=LeagueConfig())})
RATINGS = {"main": 25.06, "rover": -3.0, "late": None}


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        # 2500 of 10000 steps are done; the other 7500 take 30 s at 250/s
        # 400 of 500 updates are done; 100 take 2 s at 50/s, which comes first
        (StopConfig(max_env_steps=10_000, max_train_iters=500), Outlook(0.8, 2.0)),
        # 12 of 16 s are gone
        (StopConfig(max_env_steps=10_000, max_wall_s=16), Outlook(0.75, 4.0)),
        # nearest in share and nearest in time may be different conditions: 50 % against 25 %, 12 s against 30 s
        (StopConfig(max_env_steps=10_000, max_wall_s=24), Outlook(0.5, 12.0)),
        # more than done
    ],
)
def test_the_outlook_is_that_of_the_nearest_condition(stop: StopConfig, expected: Outlook) -> None:
    assert outlook(status(), stop) == expected


def test_plain_lines_come_with_a_new_state_and_else_now_and_then() -> None:
    output = io.StringIO()
    view = PlainView(CONFIG, output)

    def lines_after(now_s: float, **changes: object) -> int:
        view.update(status(**changes), now_s)
        return len(output.getvalue().splitlines())

    assert lines_after(0.0, state="queued") == 1
    assert lines_after(0.1, state="queued") == 1
    assert lines_after(0.2) == 2  # running
    assert lines_after(10.1) == 2
    assert lines_after(10.2) == 3  # ten seconds
    assert lines_after(11.0, last_return=200.0) == 3  # an evaluation, but a moment ago there was a line
    assert lines_after(12.2, last_return=200.0) == 4
    assert lines_after(12.3, last_return=200.0, state="finished") == 5
    view.close()


def test_a_league_shows_ratings_in_place_of_returns() -> None:
    policies = [PolicyStatus(name, 7, 3, 2, 0.0, None, 0.5, 1, None, rating) for name, rating in RATINGS.items()]
    shown = {
        "rating 25.1": status(last_return=0.0, best_return=None, rating=25.06),
        "rating main 25.1, rover -3.0": status(last_return=0.0, best_return=None, policies=policies),
        "rating -": status(last_return=None, best_return=None, policies=policies[2:]),
    }
    for text, known in shown.items():
        assert f" | {text} | " in plain_line(known, LEAGUE)


def test_a_terminal_gets_the_live_view_and_a_file_gets_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(open_view(CONFIG, io.StringIO()), PlainView)
    view = open_view(CONFIG, Terminal())
    assert isinstance(view, LiveView)
    view.update(status(), 0.0)
    view.close()


@dataclass
class Cell:
    """The output of a notebook's cell: what stands in it after each message to the browser."""

    pictures: list[str] = field(default_factory=list[str])
    displays: int = 0

    def display(self, obj: object, *, raw: bool, display_id: bool) -> Displayed:
        assert display_id, "without an id it cannot be redrawn"
        self.displays += 1
        self.update(obj, raw=raw)
        return self

    def update(self, obj: object, *, raw: bool) -> None:
        assert raw
        assert isinstance(obj, dict)
        self.pictures.append(obj["text/plain"])


def test_a_notebook_redraws_one_picture_now_and_then_and_keeps_the_last() -> None:
    cell = Cell()
    view = NotebookView(CONFIG, cell.display)
    view.update(status(), 0.0)
    assert cell.pictures[0].splitlines()[1].split() == ["env_step", "2,500", "250/s"]
    view.update(status(env_step=2_600), 0.4)  # too soon
    assert len(cell.pictures) == 1
    view.update(status(env_step=2_700), 0.5)
    view.update(status(env_step=2_800, state="finished"), 0.6)
    view.close()
    view.close()
    steps = [picture.splitlines()[1].split()[1] for picture in cell.pictures]
    assert (steps, cell.displays) == (["2,500", "2,700", "2,800"], 1)
    assert "finished" in cell.pictures[-1]


def test_a_notebook_is_known_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython is no dependency; this has the two functions of it that are asked."""
    cell = Cell()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.__dict__["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    display.__dict__["display"] = cell.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    view = open_view(CONFIG)
    assert isinstance(view, NotebookView)
    view.update(status(), 0.0)
    assert "mine" in cell.pictures[0]
    for shell in (None, SimpleNamespace(), SimpleNamespace(kernel=None)):  # plain Python, and a terminal's IPython
        ipython.__dict__["get_ipython"] = lambda shell=shell: shell
        assert not isinstance(open_view(CONFIG), NotebookView)
