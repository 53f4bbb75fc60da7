"""try-begin through the HTTP service beside the bare routine."""
