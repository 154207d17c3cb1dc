"""What goes wrong between run folders and a picture."""

from __future__ import annotations


class PlotError(Exception):
    """There is nothing to draw as asked; the message says what was looked for and where."""
