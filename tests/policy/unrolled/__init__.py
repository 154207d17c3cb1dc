"""An environment whose observations show its history, and an algorithm that checks its rows against it."""
