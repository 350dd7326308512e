"""Webhooks: how a message looks to each kind of receiver, how it is signed, and how it gets there."""
