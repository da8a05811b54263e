"""Benchmark suites and their record: problems, timing, and how rows are kept and shown."""
