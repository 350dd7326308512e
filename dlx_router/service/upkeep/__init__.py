"""What runs once in a process, beside the letters."""
