"""What tests, measurements, pages and releases are made with: run from the root as `python -m tools.FOLDER.MODULE`."""
