"""Environments that play well and cannot be filmed, each in its own way."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from remuda.tests.environments.painter import WidePainter


class Blind(WidePainter):
    """As where there is no display."""

    def render(self) -> Any:
        raise RuntimeError("no display")


class BlindLater(WidePainter):
    """Its renderer dies in the middle of an episode."""

    def render(self) -> Any:
        if self.taken == 4:
            raise RuntimeError("the renderer is gone")
        return super().render()


class Leaving(WidePainter):
    """Its renderer wants to end the process."""

    def render(self) -> Any:
        sys.exit("no renderer here")


class Growing(WidePainter):
    """Its pictures have another size at each step."""

    def render(self) -> Any:
        return np.zeros((8 + self.taken, 8, 3), np.uint8)


def unseen() -> WidePainter:
    """Takes no render_mode."""
    return WidePainter()
