"""`Client` talks to a running coordinator. For a whole run use `remuda.train` or `remuda.launch`."""

from remuda.client.client import Client, LogReader

__all__ = ["Client", "LogReader"]
