"""Benchmarks: what pysqlbox promises about speed, measured side by side in one run."""
