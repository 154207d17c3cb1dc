"""Starts a run as jobs of a Kubernetes cluster, whose pods may share one volume."""
