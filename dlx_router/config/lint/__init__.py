"""What is wrong with policies although each key is right, and findings in formats of other programs."""
