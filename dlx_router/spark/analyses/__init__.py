"""Analyses: DataFrame of journal events → DataFrame, pure and lazy, without UDFs. Source: docs/pipeline-analyses.md.

Every function takes events with (at least) the columns of `letters.NEEDED`, named as in the journal, and gives
exactly the columns that its `…_SCHEMA` lists. Events come each once, as `archive.reading.read` gives them. Times are
milliseconds since 1970.
"""
