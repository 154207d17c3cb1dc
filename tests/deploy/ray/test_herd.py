"""The herd on an engine that places and loses actors as a test wants: who is asked what, and what the user is told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from remuda.config.launching import RayConfig
from remuda.deploy.ray.engine import BrokenError, Introduction, LostError, Order, RayEngine
from remuda.deploy.ray.herd import AGAIN_S, FAREWELL_S, PLACING_S, Herd
from remuda.deploy.ray.launcher import RayPlan
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED, EXIT_ORPHANED, EXIT_REFUSED, LONGEST_DELAY_S
from remuda.wire.keys.secret_file import KeyFileError


@dataclass
class Stage(RayEngine):
    """An engine whose actors do what the test says. Answers are numbers."""

    placed: list[str] = field(default_factory=list[str])
    asked: dict[int, tuple[int, Order | None]] = field(default_factory=dict[int, tuple[int, Order | None]])
    """By answer, the actor and what it was told; None: to introduce itself. Only those that are not answered."""
    answers: dict[int, bytes | int | Exception] = field(default_factory=dict[int, bytes | int | Exception])
    renewed: list[int] = field(default_factory=list[int])
    ended: list[int] = field(default_factory=list[int])
    _number: int = 0

    def place(self, role: str, name: str) -> int:
        self.placed.append(name)
        return len(self.placed) - 1

    def ask_to_introduce(self, actor: int) -> int:
        return self._ask(actor, None)

    def ask_to_work(self, actor: int, order: bytes) -> int:
        return self._ask(actor, msgspec.json.decode(order, type=Order))

    def _ask(self, actor: int, order: Order | None) -> int:
        assert actor not in self.ended
        self._number += 1
        self.asked[self._number] = (actor, order)
        return self._number

    def ready(self, answers: Sequence[int], timeout_s: float) -> Sequence[int]:
        return [answer for answer in answers if answer in self.answers]

    def take(self, answer: int) -> bytes | int:
        del self.asked[answer]
        match self.answers.pop(answer):
            case Exception() as error:
                raise error
            case found:
                return found

    def renew(self, actor: int) -> None:
        self.renewed.append(actor)

    def end(self, actor: int) -> None:
        self.ended.append(actor)

    def shortage(self, role: str) -> str:
        return "needs CPU 1; free in the cluster: CPU 0"

    # --- what the test says ---

    def reply(self, actor: int, found: bytes | int | Exception) -> None:
        """To what this actor was asked last."""
        [answer] = [number for number, (whom, _) in self.asked.items() if whom == actor]
        self.answers[answer] = found

    def order(self, actor: int) -> Order | None:
        """What this actor works at; None if it was asked to introduce itself."""
        [order] = [order for whom, order in self.asked.values() if whom == actor]
        return order


class Scene:
    def __init__(self, folder: Path, **counts: int) -> None:
        self.stage, self.now_s = Stage(), 1_000.0
        self.keys: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.file = folder / "connection.json"
        self.file.write_text('{"address": "here"}')
        plan = RayPlan(counts=counts, settings=RayConfig(), runs_dir=Path("/runs"), coordinator_timeout_s=60.0)

        def let_in(name: str, key: str) -> None:
            self.keys.append((name, key))

        self.herd = Herd(plan, self.stage, self.file, let_in, self.said.append)
        self.step()

    def step(self, seconds: float = 0.0) -> None:
        self.now_s += seconds
        self.herd.step(self.now_s)

    def reply(self, actor: int, found: bytes | int | Exception) -> None:
        self.stage.reply(actor, found)
        self.step()

    def begin(self, actor: int) -> Order:
        """Its process introduces itself."""
        key = f"{len(self.keys):064x}"
        self.reply(actor, msgspec.json.encode(Introduction(key, "node1", 7, "0.1.0")))
        assert self.keys[-1][1] == key
        order = self.stage.order(actor)
        assert order is not None
        return order


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, collector=1)


def test_each_worker_is_an_actor_and_its_key_is_let_in_before_it_works(tmp_path: Path) -> None:
    scene = Scene(tmp_path, learner=1, collector=2)
    assert [name.split("-")[0] for name in scene.stage.placed] == ["learner", "collector", "collector"]
    orders = [scene.begin(actor) for actor in range(3)]
    assert [name for name, _ in scene.keys] == scene.stage.placed
    assert len({order.uuid for order in orders}) == 3
    assert {(order.incarnation, order.former_exit, order.connection) for order in orders} == {
        (1, "", '{"address": "here"}')
    }


def test_a_lost_worker_goes_on_as_its_next_incarnation_with_a_key_of_its_own(scene: Scene) -> None:
    first = scene.begin(0)
    scene.reply(0, LostError("Socket closed"))
    assert scene.said[-1].endswith("ended with the loss of its process (Socket closed); starting it again in 1 s")
    assert scene.stage.asked == {}
    scene.step(1.0)
    second = scene.begin(0)
    assert (second.uuid, second.incarnation) == (first.uuid, 2)
    assert second.former_exit == "the loss of its process (Socket closed)"
    assert [name for name, _ in scene.keys] == [scene.stage.placed[0]] * 2
    assert scene.stage.placed == scene.stage.placed[:1], "Ray places the same actor again"


def test_who_is_lost_and_finds_no_other_place_is_named_with_what_it_needs(scene: Scene) -> None:
    """Ray answers at once that the actor is not there, and nothing more, however long it has no room for it."""
    scene.begin(0)
    scene.reply(0, LostError("its node"))
    scene.step(1.0)
    assert len(scene.said) == 1
    for _ in range(math.ceil(2 * PLACING_S / AGAIN_S) + 2):
        scene.reply(0, LostError("unavailable"))
        scene.step(AGAIN_S)
    waits = [said for said in scene.said if "for a place: it needs CPU 1; free in the cluster: CPU 0" in said]
    assert [wait.split(" for a place")[0] for wait in waits] == [
        f"{scene.stage.placed[0]} has waited {wait_s} s" for wait_s in (10, 20)
    ]


def test_one_that_was_asked_to_end_while_there_is_a_coordinator_goes_on_elsewhere(scene: Scene) -> None:
    scene.begin(0)
    scene.reply(0, EXIT_DONE)
    scene.step(FAREWELL_S - 0.1)
    assert (scene.said, scene.stage.renewed) == ([], [])
    scene.step(0.1)
    assert "ended with a request to end" in scene.said[-1]
    assert scene.stage.renewed == [0]
    scene.step(1.0)
    assert scene.begin(0).incarnation == 2


def test_one_that_was_sent_home_stays_there(scene: Scene) -> None:
    scene.begin(0)
    scene.reply(0, EXIT_DONE)
    scene.file.unlink()  # a coordinator that ends in order removes it when its workers have left
    scene.step(FAREWELL_S)
    scene.step(60.0)
    assert scene.herd.over
    assert scene.stage.asked == {}
    assert scene.herd.exit_code == EXIT_DONE
    assert scene.said == []


def test_a_process_that_comes_after_the_end_of_the_coordinator_has_nothing_to_do(scene: Scene) -> None:
    scene.begin(0)
    scene.reply(0, LostError("killed"))
    scene.step(1.0)
    scene.file.unlink()  # the run ends while another process takes its place
    scene.reply(0, msgspec.json.encode(Introduction("f" * 64, "node1", 8, "0.1.0")))
    assert scene.herd.over
    assert scene.stage.asked == {}
    assert scene.herd.exit_code == EXIT_DONE


def test_where_no_key_can_be_let_in_it_gives_up(scene: Scene) -> None:
    def damaged(name: str, key: str) -> None:
        raise KeyFileError("the list of keys is damaged")

    scene.herd._let_in = damaged
    while not scene.herd.hopeless:
        scene.reply(0, msgspec.json.encode(Introduction("f" * 64, "node1", 8, "0.1.0")))
        scene.step(LONGEST_DELAY_S)
    assert "(the list of keys is damaged) (8 short runs in a row)" in scene.said[-1]


@pytest.mark.parametrize("exit_code", [EXIT_REFUSED, EXIT_ORPHANED])
def test_who_was_refused_or_has_lost_its_coordinator_is_not_started_again(scene: Scene, exit_code: int) -> None:
    scene.begin(0)
    scene.reply(0, exit_code)
    assert scene.herd.over
    assert scene.herd.exit_code == exit_code
    assert str(scene.herd.unusable).startswith("no collector is left: each ")


def test_where_no_worker_can_begin_it_says_why_and_gives_up(scene: Scene) -> None:
    scene.reply(0, BrokenError("ModuleNotFoundError: No module named 'remuda'"))
    assert scene.herd.unusable == "no collector can begin: ModuleNotFoundError: No module named 'remuda'"


def test_one_node_where_none_can_begin_does_not_end_a_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path, collector=2)
    scene.begin(0)
    scene.reply(1, BrokenError("ImportError"))
    assert scene.herd.unusable is None
    scene.step(1.0)
    assert len(scene.stage.placed) == 3, "another actor takes the place of the broken one"
    assert scene.begin(2).incarnation == 1


def test_a_role_that_keeps_dying_is_hopeless(tmp_path: Path) -> None:
    scene = Scene(tmp_path, collector=1, learner=1)
    scene.begin(1)
    for _ in range(8):
        assert not scene.herd.hopeless
        scene.begin(0)
        scene.reply(0, EXIT_FAILED)
        scene.step(32.0)
    assert scene.herd.hopeless


def test_at_its_end_every_actor_is_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path, collector=2)
    scene.begin(0)
    scene.herd.end()
    assert scene.stage.ended == [0, 1]
