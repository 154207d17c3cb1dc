"""`/health` and `/metrics` over HTTP, from a separate process: the coordinator's loop only sends a snapshot every
second."""
