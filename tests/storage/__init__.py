"""Tests of remuda.storage."""
