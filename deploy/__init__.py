"""Starts and supervises processes, on this machine or through an engine on other machines."""
