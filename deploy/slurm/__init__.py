"""Starts a run as jobs of a Slurm cluster, whose nodes may share a folder."""
