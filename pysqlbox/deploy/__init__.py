"""Rendering and deployment of the SQL under ``sql/`` and ``migrations/``."""
