"""Benchmarks: each prints a table of measured figures beside its targets. Nothing here is a test."""

NOT_RUN = 3
"""Exit status of a benchmark whose tools are not installed: missed when it was asked for by name, else passed over."""
