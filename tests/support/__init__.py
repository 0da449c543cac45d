"""Helpers of tests: waiting, services and workers as processes, databases, buckets, a browser, and sample data.

Benchmarks use them too. Nothing here imports from a test module or from ``benchmarks``.
"""
