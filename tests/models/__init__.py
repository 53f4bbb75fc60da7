"""What the stored routines promise: one body for every engine, names that carry the requirement numbers."""
