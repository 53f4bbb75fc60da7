"""Tests of what OpenTelemetry is told; the conventions' names are data, from their published model."""
