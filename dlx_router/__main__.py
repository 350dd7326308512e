"""`python -m dlx_router` is `dlx-router`."""

from dlx_router.cli.main import main

if __name__ == "__main__":
    main()
