"""A letter's way: taken, decided, published, confirmed, settled."""
