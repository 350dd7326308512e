"""Policies that scenes of several folders have in common."""

from typing import Final

# Each letter dies at its first delivery.
POLICY: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 1}
"""
