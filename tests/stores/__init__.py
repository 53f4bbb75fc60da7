"""Many stores."""
