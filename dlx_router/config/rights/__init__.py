"""RabbitMQ permissions: the least that each command needs, and how they are added to what a user has."""
