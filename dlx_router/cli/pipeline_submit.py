"""For spark-submit: `spark-submit --py-files dlx_router.zip pipeline_submit.py ingest --archive /mnt/archive`.

The same commands as `dlx-router pipeline`; spark-submit says where they run.
"""

import sys

from dlx_router.cli.main import main

if __name__ == "__main__":
    main(["pipeline", *sys.argv[1:]])
