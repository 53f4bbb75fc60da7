"""Programs that type checkers read; nothing of them runs."""
