"""Redrive tasks at work: the leader's worker moves letters, one task a queue."""
