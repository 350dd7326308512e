"""The way of letters back: to one vhost of one cluster, whatever the references to its URL say later or elsewhere."""

import os
from dataclasses import dataclass

from dlx_router.spark.amqp import StreamError
from dlx_router.spark.options import Options
from dlx_router.spark.publishing import Publishing


@dataclass(frozen=True, slots=True)
class Way:
    """How letters are sent. `connection` and `key_file` say where secrets are, on every worker.

    `cluster`: the broker's name of its cluster where one was asked already; "": any.
    """

    options: Options
    key_file: str
    prefix: str = "dlx-router"
    rate: float = 0.0
    tasks: int = (
        2  # chunks that are sent at a time; a run that is killed has sent so many of which the ledger knows nothing
    )
    cluster: str = ""

    def publishing(self) -> Publishing:
        """A connection to the broker; StreamError where `env:` or `file:` leads to another one than it did."""
        options = self.options
        out = Publishing(options.address(), options.tls, timeout_s=options.timeout_s)
        if self.cluster in {"", out.cluster}:
            return out
        out.close()
        here = f"{options.connection} leads to cluster {out.cluster!r} on {os.uname().nodename}"
        raise StreamError(f"{here}, and the plan is sent to {self.cluster!r}; let it lead there on every worker")
