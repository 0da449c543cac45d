"""What tests share: waiting, services and workers as processes, databases, buckets, a browser, and sample data.

Benchmarks use the same parts. Nothing here imports from a test module or from ``benchmarks``.
"""
