"""`/health` and `/metrics` over HTTP, from a process that gets a snapshot of the coordinator every second."""
