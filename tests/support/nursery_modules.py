"""What routers and commands import until they work; imported by the process that forks them, by nobody else."""

import gc
import importlib
import pkgutil
from contextlib import suppress
from typing import Final

import dlx_router

_OTHERS: Final = ("dlx_router.spark", "dlx_router.cli.pipeline")
_BESIDE: Final = ("uvloop", "uvicorn.protocols.http.h11_impl",
                  "uvicorn.lifespan.on", "uvicorn.lifespan.off", "encodings.idna")  # fmt: skip

_own = [module.name for module in pkgutil.walk_packages(dlx_router.__path__, "dlx_router.")]
_wanted = (name for name in _own if not name.startswith(_OTHERS) and not name.endswith("__main__"))
for _name in (*_wanted, *_BESIDE):
    with suppress(ImportError):  # of an extra, or optional
        importlib.import_module(_name)

# A router collects garbage as it begins: what was there before the fork it need neither look through nor copy.
gc.collect()
gc.freeze()
