"""Redrive tasks: what a task is, which letters it means, how fast it goes and when it stops. Pure."""
