"""What tests, measurements, pages and releases are made with: modules that are run from the root by `python -m`."""
