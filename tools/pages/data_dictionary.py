"""docs/data-dictionary.md from the tables in the code: `make pages`. As it is where the pipeline is not installed."""

import importlib.util
import sys
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs/data-dictionary.md"


def main() -> int:
    """0: written, or left alone."""
    if importlib.util.find_spec("pyspark") is None:
        print(f"{PAGE.name}: left as it is; `make spark` installs what it is made by")
        return 0
    from dlx_router.spark.tables.page import page  # noqa: PLC0415 - pyspark may be missing

    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
