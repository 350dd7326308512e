"""Load on one version only, the newest that was asked for; what depends on the version is in tests/service."""

from tests.faults.conftest import broker
from tests.service.conftest import _shared, scene

__all__ = ["_shared", "broker", "scene"]
