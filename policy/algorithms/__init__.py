"""One file per algorithm; the update rule of each is readable on one page."""
