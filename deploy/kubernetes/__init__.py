"""Starts a run as jobs of a Kubernetes cluster, whose pods share one volume."""
