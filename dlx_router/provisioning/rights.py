"""What a permission of RabbitMQ allows."""

import re


def may(expression: str, name: str) -> bool:
    """As the broker: unanchored, and the empty one fits nothing. What only the broker understands is taken to fit."""
    try:
        return re.search(expression or "^$", name) is not None
    except re.error:
        return True
