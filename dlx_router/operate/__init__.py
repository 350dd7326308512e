"""What is told about letters and done with them later: the journal."""
