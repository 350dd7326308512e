"""Bulk redrive: letters out of the archive, back to their failed queues, by a plan that was frozen before.

`plan` chooses and freezes, `sending` publishes a chunk on Spark's workers, `run` goes through the chunks and keeps the
ledger, `reconcile` compares it with the journal afterwards. Source: docs/pipeline-analyses.md.
"""
