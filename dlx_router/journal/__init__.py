"""The journal: every decision is an event in a stream. Source: docs/journal.md."""
