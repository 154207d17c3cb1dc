"""Everything about files: atomic writes, locks, run folders."""
