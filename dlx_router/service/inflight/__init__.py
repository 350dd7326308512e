"""A delivery as bytes, as a letter, and as the copy that is published."""
