"""An environment whose observations tell what happened in it, and an algorithm that checks its rows against that."""
