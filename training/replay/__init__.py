"""Experience that is counted, sampled and dropped, and what a run may still take."""
