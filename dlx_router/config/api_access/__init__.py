"""Who may use the HTTP API: tokens, and hosts that requests may name."""
