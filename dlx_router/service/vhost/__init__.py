"""One vhost: its connection, its session, and what runs beside the letters."""
