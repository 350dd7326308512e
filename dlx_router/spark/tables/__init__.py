"""The archive as tables: a data dictionary, views for DuckDB and Spark and `pipeline sql`."""
