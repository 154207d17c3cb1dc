"""Typed messages between processes, and the sockets for them."""
