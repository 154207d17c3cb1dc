"""What a Python command runs, and running it in a process that has started already."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

REMUDA = Path(sys.executable).with_name("remuda")


@dataclass(frozen=True)
class Program:
    """`python -m MODULE`, `python -c CODE`, or the `remuda` script."""

    kind: Literal["module", "code", "script"]
    what: str
    """The module's name, the code, or the script's path."""
    arguments: tuple[str, ...]
    isolated: bool = False
    """With -P: neither the working folder nor that of the script is looked at for modules."""

    @classmethod
    def of(cls, command: Sequence[str]) -> Program | None:
        """None if it is another command, or has options of Python's that count before anything is imported."""
        first, *rest = command
        if str(REMUDA) in (first, shutil.which(first)):
            return cls("script", str(REMUDA), tuple(rest))
        isolated = rest[:1] == ["-P"]
        rest = rest[isolated:]
        if first != sys.executable or len(rest) < 2 or rest[0] not in ("-m", "-c"):
            return None
        return cls("module" if rest[0] == "-m" else "code", rest[1], tuple(rest[2:]), isolated)

    @property
    def starts_others(self) -> bool:
        """Whether Remuda's processes that it starts are to be forked, too: those of a herd, and a learner's ranks."""
        verb = self.kind == "script" or self.what == "remuda.cli"
        herd = verb and self.arguments[:1] in (("launch",), ("sweep",))
        return herd or (self.kind == "module" and self.what == "torch.distributed.run")

    def run(self) -> None:
        """Run it as `__main__`, as Python would; ends as the program ends."""
        if self.kind == "script":
            sys.argv = [self.what, *self.arguments]
            sys.path.insert(0, str(Path(self.what).resolve().parent))
            runpy.run_path(self.what, run_name="__main__")
        elif self.kind == "module":
            sys.argv = ["-m", *self.arguments]  # its path comes in the place of -m
            if not self.isolated:
                sys.path.insert(0, os.getcwd())
            sys.modules.pop(self.what, None)  # Python would have imported what the program imports, not the program
            runpy.run_module(self.what, run_name="__main__", alter_sys=True)
        else:
            sys.argv = ["-c", *self.arguments]
            if not self.isolated:
                sys.path.insert(0, "")
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(self.what, "<string>", "exec"), main.__dict__)
