"""The error of plotting."""

from __future__ import annotations


class PlotError(Exception):
    """The requested curves cannot be drawn; the message says what is missing, and where."""
