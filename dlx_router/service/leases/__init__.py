"""Leases: letters received from a dead-letter queue one by one, held until somebody says what becomes of them."""
