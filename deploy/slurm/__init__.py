"""Starts a run as jobs of a Slurm cluster, whose nodes see one shared folder."""
