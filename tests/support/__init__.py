"""Engines to test on, a deployed schema on each, and the closing lines that say which of them ran."""
