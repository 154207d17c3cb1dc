"""What the page shows in tests: a real coordinator with real runs of every state, and names that are meant to harm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil

from remuda.config.load import load_config
from remuda.tests.faults.herd import ENV, Herd
from remuda.tests.parallel.user_folder import ENDLESS, FILMED, UserFolder
from remuda.tests.patience import HANG_S, until, until_gone
from remuda.tests.warm.program import REMUDA

HARM = "<img src=x onerror=window.harmed=1>"
"""Markup, if anybody takes it for markup. Environments print it, and one is called so."""
HARMFUL_NAME = "<b onclick=harm()>bold<b>"
_LINK = re.compile(r"^page: (http://\S+/#token=[\w-]+)$", re.M)


class Stage:
    """A runs folder with a coordinator, a page, workers for one run, and these runs:

    `done_1` and `done_2` have finished and differ in their seed, `goes_on` has all workers, and `waiting`, with
    markup in its name, waits for them. `harmful` is a folder whose environment has such a name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.herd = Herd(folder / "herd")

    def gather(self) -> None:
        """Start a coordinator with its page, and the four workers that a run wants."""
        self.restart()
        self.herd.workers()
        self.herd.wait_members(4)

    def fill(self) -> None:
        """Start everything; returns once all runs are in their states."""
        self.gather()
        prints = {**ENDLESS["env"], "kwargs": {"says": HARM}}
        short = UserFolder.make(self.folder / "short", {**FILMED, "env": prints, "stop": {"max_env_steps": 2000}})
        self.user = UserFolder.make(self.folder / "user", ENDLESS)
        for seed in (1, 2):
            self._submit(short, "done", f"done_{seed}", seed=seed)
        until(lambda: all(one.state == "finished" for one in self.herd.status().experiments), "the end of both")
        harmful = self.herd.runs / "harmful"
        shutil.copytree(self.herd.runs / "done_1", harmful)
        settings = json.loads((harmful / "config.json").read_text())
        settings["env"] |= {"id": HARM, "make": None, "kwargs": {}}
        (harmful / "config.json").write_text(json.dumps(settings))
        self.herd.submit(self.user, "goes_on")
        self.herd.wait_env_step("goes_on", 500)
        self._submit(self.user, HARMFUL_NAME, "waiting", priority=1)
        until(lambda: self.herd.experiment(HARMFUL_NAME).state == "queued", "a run that waits")

    def _submit(self, user: UserFolder, name: str, run: str, *, seed: int = 3, priority: int = 0) -> None:
        config = load_config(user.config, overrides=["name=done", f"seed={seed}"]).config
        with self.herd.client() as client:
            client.submit(config, name=name, run_dir=run, priority=priority)

    def restart(self) -> None:
        """Start a coordinator, by the same command every time, with its page."""
        before = len(self._links())
        self.process = self.herd.coordinator({"REMUDA_PAGE": "1"})  # herds of other tests serve none
        until(lambda: len(self._links()) > before, "a link")

    def kill(self) -> None:
        """Kill the coordinator, if it lives. Its page ends, too, and its port is free for the next one."""
        if self.process.poll() is not None:
            return
        pages = [each for each in psutil.Process(self.process.pid).children() if "remuda.page" in each.cmdline()]
        self.process.kill()
        self.process.wait()
        until_gone(pages)

    @cached_property
    def operators_link(self) -> str:
        """What `remuda page --link` prints."""
        command = [str(REMUDA), "page", str(self.herd.runs), "--link"]
        printed = subprocess.run(command, env=ENV, capture_output=True, text=True, check=True, timeout=HANG_S)
        return printed.stdout.strip()

    @property
    def viewers_link(self) -> str:
        """What the coordinator prints."""
        return self._links()[-1]

    @property
    def address(self) -> str:
        """Of the page, without a token."""
        return self.operators_link.partition("#")[0]

    def link(self, view: str) -> str:
        """The operator's link, leading to a view such as `queue`."""
        return f"{self.operators_link}&/{view}"

    def run(self, name: str, part: str = "") -> str:
        """The operator's link to a run, or to a part of it such as `logs`."""
        return self.link("/".join(["run", quote(name, safe=""), *filter(None, [part])]))

    def _links(self) -> list[str]:
        return _LINK.findall(self.herd.said())


class Served(NamedTuple):
    """What `remuda page` serves."""

    link: str
    pid: int


@contextmanager
def served(runs: Path, said: Path, *options: str) -> Generator[Served]:
    """Serve run folders that no coordinator has; the file `said` gets what the command prints."""
    with said.open("wb") as err:
        process = subprocess.Popen([REMUDA, "page", runs, *options], env=ENV, stdin=subprocess.DEVNULL, stderr=err)
    try:
        until(lambda: "#token=" in said.read_text(), "a link")
        yield Served(said.read_text().split()[1], process.pid)
    finally:
        process.terminate()
        process.wait(HANG_S)
