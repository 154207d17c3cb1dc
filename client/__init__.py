"""A running coordinator's `Client`. Runs from start to end are `remuda.train` and `remuda.launch`."""

from remuda.client.client import Client, LogReader

__all__ = ["Client", "LogReader"]
