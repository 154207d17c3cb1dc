"""Everything that crosses a disk: atomic writes, locks, run folders."""
