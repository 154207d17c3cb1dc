"""`/health` and `/metrics` over HTTP, from a process of their own: the loop only tells it, once a second, how it is."""
