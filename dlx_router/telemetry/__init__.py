"""Metrics, logs and readiness."""
