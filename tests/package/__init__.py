"""The package against real engines."""
