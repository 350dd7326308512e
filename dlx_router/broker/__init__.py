"""The only package of the router that opens a socket to RabbitMQ."""
