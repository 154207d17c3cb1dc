"""Typed messages between processes, and the sockets they travel on."""
