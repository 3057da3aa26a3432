"""Benchmarks: each prints a table of measured figures beside its targets. Nothing here is a test."""
