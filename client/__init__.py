"""Remuda from Python: a running coordinator's `Client`, and experiments from start to end with `train` and `launch`."""

from remuda.client.client import Client, LogReader
from remuda.client.running import launch, train

__all__ = ["Client", "LogReader", "launch", "train"]
