"""The error of a space that cannot be worked with; apart from spaces.py, which needs gymnasium to be imported."""

from __future__ import annotations

from remuda.config.errors import Error


class UnsupportedSpaceError(Error, ValueError):
    """An environment's observations or actions cannot be stored, or no algorithm here can work with them; the message
    names the space and what is supported."""
