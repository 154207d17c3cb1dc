"""Starts a run as jobs of a Slurm cluster, on nodes with or without a shared folder."""
