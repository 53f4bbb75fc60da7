"""What must hold when many work at once, when things break, and after thousands of random steps."""
