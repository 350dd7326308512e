"""Who is told what happens: the file of webhooks."""
