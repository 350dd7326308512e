"""The archive as tables: a data dictionary, views for DuckDB and Spark, `pipeline sql`, exports."""
