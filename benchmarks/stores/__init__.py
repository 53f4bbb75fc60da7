"""Many stores by one worker: what it costs, and how soon messages are handled, by configuration."""
