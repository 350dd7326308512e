"""Throw-away certificates for a TLS listener and its clients, made by the `openssl` program."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of one test's own; tests that want one are skipped where there is no `openssl`."""

    def __init__(self, folder: Path, name: str) -> None:
        if not shutil.which("openssl"):
            pytest.skip("no program openssl to make certificates with")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._own = Pair(folder / "ca.pem", folder / "ca.key")
        self._openssl(
            "req",
            "-x509",
            "-out",
            self._own.certificate,
            "-keyout",
            self._own.key,
            "-subj",
            f"/CN={name}",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        )

    @property
    def certificate(self) -> Path:
        """What others trust."""
        return self._own.certificate

    def issue(self, name: str) -> Pair:
        """A certificate for this host or user name, and for no other."""
        pair, request = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key"), self._folder / f"{name}.csr"
        self._openssl("req", "-new", "-out", request, "-keyout", pair.key, "-subj", f"/CN={name}")
        (self._folder / "names").write_text(f"subjectAltName=DNS:{name}\n", encoding="utf-8")
        self._run(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self._own.certificate,
            "-CAkey",
            self._own.key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            self._folder / "names",
            "-out",
            pair.certificate,
        )
        return pair

    def _openssl(self, verb: str, *args: str | Path) -> None:
        self._run(verb, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", *args)

    @staticmethod
    def _run(*args: str | Path) -> None:
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)
