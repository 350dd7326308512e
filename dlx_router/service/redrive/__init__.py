"""Redrive tasks: what leads, reads, edits and sends letters again."""
