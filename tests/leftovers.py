"""What this process holds that a test may have left: threads, child processes, open files and sockets."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass

import psutil

from remuda.tests.patience import HANG_S

_PROC = "/proc/self"
"""Asked before and after each of thousands of tests: paths are put together as texts, which costs less than half."""
_OF_LIBRARIES = (sys.prefix, "/dev/", "anon_inode:")
"""Fonts, the random device, and how sockets wake their threads."""


@dataclass(frozen=True)
class Held:
    """All of it at one moment; each child is named by its process id and its command."""

    threads: frozenset[threading.Thread]
    children: frozenset[psutil.Process]
    files: frozenset[tuple[int, str]]
    """Descriptor and what it leads to; empty where the system does not list them."""

    @classmethod
    def now(cls) -> Held:
        return cls(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_files()))

    def since(self, before: Held) -> list[str]:
        """Name what is held now and was not before."""
        threads = [f"thread {thread.name}" for thread in self.threads - before.threads if thread.is_alive()]
        children = [f"process {child.pid}: {_command(child)}" for child in self.children - before.children]
        return [*threads, *children, *(f"descriptor {number}: {path}" for number, path in self.files - before.files)]


def left_since(before: Held) -> list[str]:
    """Name what was left behind. What waits for the garbage collector is not, and what is about to end is given time:
    libraries end threads and close sockets without waiting for them."""
    deadline_s = time.monotonic() + HANG_S
    while left := Held.now().since(before):
        collect()
        if time.monotonic() > deadline_s:
            return left
        time.sleep(0.01)
    return []


def end_children(before: Held) -> None:
    """Kill the child processes that were not there before."""
    for child in Held.now().children - before.children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
            child.wait()


def collect() -> None:
    """Let go of what nobody holds any more. That it was never closed is the affair of the test that did so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _children() -> list[psutil.Process]:
    """Those that are not zombies. psutil would look at every process of the machine, which takes milliseconds."""
    if not os.path.exists(f"{_PROC}/task/{os.getpid()}/children"):
        return [child for child in psutil.Process().children() if _lives(child)]
    found: list[psutil.Process] = []
    for task in os.listdir(f"{_PROC}/task"):
        with suppress(OSError), open(f"{_PROC}/task/{task}/children") as children:  # a thread may have ended meanwhile
            for pid in children.read().split():
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(int(pid)))
    return [child for child in found if _lives(child)]


def _lives(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline())[:200]
    except psutil.NoSuchProcess:
        return "it has ended"


def _files() -> list[tuple[int, str]]:
    """Except what libraries keep for themselves."""
    found: list[tuple[int, str]] = []
    with suppress(FileNotFoundError):
        for name in os.listdir(f"{_PROC}/fd"):
            with suppress(OSError):  # the descriptor of this very listing
                found.append((int(name), os.readlink(f"{_PROC}/fd/{name}")))
    return [(number, path) for number, path in found if not path.startswith(_OF_LIBRARIES)]
