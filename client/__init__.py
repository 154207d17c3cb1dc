"""The Python API of a running coordinator."""

from remuda.client.client import Client, LogReader

__all__ = ["Client", "LogReader"]
