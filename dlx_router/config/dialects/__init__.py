"""Policies of other systems → ours, and a report of what could not be carried over and why."""
