"""Environments that raise errors, abort their process or hang cost their own run alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, IN_WORK, LONG_RUN, assert_exact, commander
from remuda.tests.faults.sizes import LONG_STEPS
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

BROKEN = """

class Lame(Horse):
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("the horse does not get up")


class Vicious(Horse):
    def step(self, action):
        if taken.get(os.getpid(), (0, 0))[1] > 200:
            os.abort()
        return super().step(action)


def make_lame():
    return Lame(None, None, 0.0)


def make_vicious():
    return Vicious(None, None, 0.0)
"""


def broken(place: Path, make: str, collectors: int) -> UserFolder:
    """Somebody whose environments are broken."""
    counts = {"collector": {**CONFIG["collector"], "count": collectors, "minimum": collectors}}
    user = UserFolder.make(place, {**ENDLESS, **counts, "env": {"make": f"my_envs:{make}"}})
    with (user.root / "my_envs.py").open("a") as module:
        module.write(BROKEN)
    return user


def test_what_raises_errors_or_aborts_fails_its_run_and_no_other(tmp_path: Path, herds: Herds) -> None:
    """9. Beside a good run, whose environments wait, one whose environments never reset, and one whose environments
    end their process, though each hands in chunks first. The same workers serve the next run."""
    one = {"collector": {**CONFIG["collector"], "count": 1}}
    good, herd = UserFolder.make(tmp_path / "good", {**LONG_RUN, **one, **HELD}), herds()
    good.hold()
    herd.coordinator()
    herd.workers(collectors=3, evaluators=2, learners=2)
    herd.wait_members(7)
    run = herd.submit(good, "good")
    until(lambda: herd.experiment("good").state == "running", "the good run has its workers")
    lame = herd.submit(broken(tmp_path / "lame", "make_lame", 1), "lame")
    failed = herd.wait_over("lame", "failed")
    assert "the horse does not get up" in (failed.reason or "")
    told = [text for text in commander(lame) if "Traceback (most recent call last)" in text]
    assert len(told) >= 5
    assert all("my_envs.py" in text and "does not get up" in text for text in told)
    counted = [text.split(":")[0] for text in commander(lame) if " failure of " in text]
    assert len(counted) == len(told)
    assert counted[0].startswith("1st failure of ")
    rest_s = [*moments(lame, " joins as ")][-1] - next(moments(lame, " failure of "))
    assert rest_s >= 5.0, "pauses of 1, 2, 4 … s; two that fail at once share one"
    assert {one.incarnation for one in herd.incarnations()} == {1}, "no process ended for it"

    vicious = herd.submit(broken(tmp_path / "vicious", "make_vicious", 2), "vicious")
    failed = herd.wait_over("vicious", "failed")
    assert re.match(r"\d+ deaths of collectors in a row", failed.reason or ""), failed.reason
    assert "signal 6 (SIGABRT)" in (failed.reason or "")
    assert failed.env_step > 0, "its incarnations had done some work"
    assert any("ended with signal 6 (SIGABRT) and was started again" in text for text in commander(vicious))

    all_three = {"collector": {**CONFIG["collector"], "count": 3, "minimum": 3}}
    following = herd.submit(user := UserFolder.make(tmp_path / "next", all_three), "next")
    good.release()
    herd.wait_over("good")
    herd.wait_over("next")
    herd.shut_down()
    assert assert_exact(herd, run, good, alone=False) >= LONG_STEPS
    assert_exact(herd, following, user, alone=False)


def moments(run: Path, part: str) -> Iterator[float]:
    """When the commander said so, in seconds, as exact as a log's clock."""
    for line in (run / "log" / "commander" / "commander_logger.txt").read_text().splitlines():
        if part in line and (match := re.match(r"\[(.*?)\]", line)):
            yield datetime.fromisoformat(match[1]).timestamp()


def test_an_environment_that_hangs_is_named_with_its_stack_and_started_anew(tmp_path: Path, herds: Herds) -> None:
    """8. Stuck, then hopeless: the commander's log shows where it hung, and the collector's next incarnation works."""
    one = {"collector": {**CONFIG["collector"], "count": 1}}
    user, herd = (
        UserFolder.make(tmp_path / "user", {**LONG_RUN, **HELD, **one}),
        herds("stuck_after_s=1,hopeless_after_s=8"),
    )
    user.hold()
    herd.coordinator()
    herd.workers(collectors=1)
    herd.wait_members(3)
    run = herd.submit(user)
    until(lambda: "stuck" in {w.state for w in herd.members("collector")}, "the collector is named stuck")
    until(lambda: commander(run, "lease"), "its stacks are in the log")
    user.release()
    herd.wait_over("horse")
    herd.shut_down()
    (told,) = commander(run, "lease")
    assert "dismissed: stuck, no progress" in told
    assert "in step" in told
    assert "my_envs.py" in told
    assert any("is stuck: beats, but no progress" in text for text in commander(run))
    assert [one.incarnation for one in herd.incarnations("collector")] == [1, 2]
    assert assert_exact(herd, run, user, lost_at_most=IN_WORK) >= LONG_STEPS
