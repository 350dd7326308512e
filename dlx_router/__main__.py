"""python -m dlx_router."""

import sys
from pathlib import Path

from dlx_router.admin.daemon import run
from dlx_router.config.policies import load_policies
from dlx_router.config.settings import Settings

settings = Settings.load({"policies": sys.argv[sys.argv.index("--policies") + 1]})
sys.exit(run(settings, load_policies(Path(settings.policies))))
