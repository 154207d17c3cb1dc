"""The Python API: submit, status, stop."""
