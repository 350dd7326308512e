"""Chaos and soak on one version only, as tests/faults."""

from tests.faults.conftest import broker

__all__ = ["broker"]
