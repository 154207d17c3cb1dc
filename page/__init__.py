"""A page about the herd and its runs, served by a separate process: JSON and files over HTTP."""
