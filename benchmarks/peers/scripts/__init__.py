"""One program a queue, run in the queue's own environment; they speak `protocol` with the harness."""
