"""Policies that scenes of several folders have in common."""

from typing import Final

# Each letter dies at its first delivery.
POLICY: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 1}
  - name: redacted
    match: "redacted.#"
    definition: {journal: {redact: [/card]}}
"""
# What people see of `policy lint`: a limit that is too small, and a key with letters in the wrong order.
BROKEN: Final = """\
version: 1
policies:
  - name: orders
    match: "orders.#"
    definition:
      max-delivery-attempts: 0
      redelivery-dealy: 5s
"""
