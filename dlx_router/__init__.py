"""dlx-router: what happens to a RabbitMQ message after it failed."""

__version__ = "0.1.0"
