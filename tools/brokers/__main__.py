"""`python -m tools.brokers`: private RabbitMQ nodes from a command line."""

import sys

from tools.brokers import main

sys.exit(main())
