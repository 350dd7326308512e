"""`commands`: plan, apply and destroy on the test's vhost. Files that need more of them take it under the same name."""

from pathlib import Path

import pytest

from tests.provisioning.test_provision import Commands
from tests.support.vhost import Vhost


@pytest.fixture
def commands(vhost: Vhost, tmp_path: Path) -> Commands:
    return Commands(vhost, tmp_path)
