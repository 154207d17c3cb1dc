"""Starts and supervises processes: on this machine, or through an engine that places them elsewhere."""
