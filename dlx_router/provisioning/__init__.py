"""What the broker should hold for the policies, what differs, and the way there and back."""
