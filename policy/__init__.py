"""Algorithms, their networks, and the file a policy is published in. Importing this package does not import torch."""
