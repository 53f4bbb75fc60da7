"""What all benchmarks share: the server, its databases, and what the machine tells."""
