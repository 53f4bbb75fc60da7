"""Other queues on PostgreSQL, each behind the same small interface, for benchmarks side by side."""
