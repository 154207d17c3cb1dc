"""One experiment from queue to end: its workers, its status, what its workers say, and how it ends."""
