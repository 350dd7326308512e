"""Analyses: DataFrame of journal events → DataFrame, pure and lazy, without UDFs. Source: docs/pipeline-analyses.md.

Every function takes events with (at least) the columns of `letters.NEEDED`, named as in the journal, and gives
exactly the columns that its `…_SCHEMA` lists. Events may come twice: each counts once. Times are milliseconds since
1970.
"""
