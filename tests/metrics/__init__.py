"""Tests of what Prometheus is told, and of the alert rules and the dashboard."""
