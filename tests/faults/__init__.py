"""Faults made on purpose, under load; the clients' own account says what became of their messages."""
