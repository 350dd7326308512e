"""The archive: every event of the journal, in Parquet files that any engine can read."""
