"""The index: a read-model of the journal in SQLite, in a process of its own, that can always be made anew."""
