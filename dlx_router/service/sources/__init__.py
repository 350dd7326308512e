"""Which queues are attended, and how."""
