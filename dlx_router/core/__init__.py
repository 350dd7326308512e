"""What happens to a letter, and why: values in, values out, no I/O."""
