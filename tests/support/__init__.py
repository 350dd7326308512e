"""What scenes are made of: a broker's vhost, a plain client, a running router, and patience."""
