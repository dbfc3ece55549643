"""Benchmarks that a user can run: ``python -m bench.NAME [--quick] --json FILE``."""
