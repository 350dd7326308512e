"""The API /api/v1: what is dying and why, and what people do about it."""
