"""dlx-router: what happens to a RabbitMQ message after it failed."""

from pkgutil import extend_path

# `dlx_router.client` is of a distribution of its own, which may lie in another folder of the path: docs/decisions/0080
__path__ = extend_path(__path__, __name__)
__version__ = "0.2.0.dev0"
