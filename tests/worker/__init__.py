"""The worker: results, threads, leases, stopping, and whole processes that meet accidents."""
