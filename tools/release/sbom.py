"""What a wheel brings with it, as CycloneDX: each package that it needs, which version was tried, and who needs whom.

Versions are those of this environment, which constraints.txt made. What only the extra `otel` needs (the image has it)
is in scope `optional`.
"""

import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from importlib import metadata
from pathlib import Path
from typing import Final

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release.provenance import sha256

EXTRA: Final = "otel"

Needs = dict[str, set[str]]
"""Name of a package → names of those that it needs."""


def write(wheel: Path, to: Path, time_s: int) -> None:
    """The same bytes for the same wheel and environment."""
    to.write_text(JsonV1Dot6(bom(wheel, time_s)).output_as_string(indent=1) + "\n", encoding="utf-8")


def bom(wheel: Path, time_s: int) -> Bom:
    """The document."""
    own = _of_wheel(wheel)
    root, plain, every = canonicalize_name(own["Name"]), Needs(), Needs()
    for extras, needs in ((frozenset[str](), plain), (frozenset({EXTRA}), every)):
        _follow(root, own.get_all("Requires-Dist") or [], extras, needs)
    known = {
        name: _component(name, metadata.metadata(name), is_required=name in plain) for name in every.keys() - {root}
    }
    known[root] = _component(root, own, is_required=True)
    made = Bom(components=[component for name, component in known.items() if name != root])
    made.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, sha256(wheel))
    made.metadata.timestamp = datetime.fromtimestamp(time_s, UTC)
    made.metadata.component = known[root]
    made.dependencies = [
        Dependency(known[name].bom_ref, [Dependency(known[other].bom_ref) for other in sorted(needs)])
        for name, needs in sorted(every.items())
    ]
    return made


def _of_wheel(wheel: Path) -> "metadata.PackageMetadata":
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(file.read(name))  # type: ignore[return-value]  # as importlib.metadata reads it


def _follow(name: str, requires: list[str], extras: frozenset[str], needs: Needs) -> None:
    """All that is needed, and by whom, from here on. Who asks twice for the same extras of a package is told once."""
    waiting, asked = [(name, requires, extras)], {(name, extras)}
    while waiting:
        asking, lines, chosen = waiting.pop()
        for requirement in (requirement for requirement in map(Requirement, lines) if _is_wanted(requirement, chosen)):
            other = canonicalize_name(requirement.name)
            needs.setdefault(asking, set()).add(other)
            needs.setdefault(other, set())
            if (key := (other, frozenset(requirement.extras))) not in asked:
                asked.add(key)
                waiting.append((other, metadata.requires(other) or [], key[1]))


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    return requirement.marker is None or any(
        requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""})
    )


def _component(name: str, package: "metadata.PackageMetadata", *, is_required: bool) -> Component:
    version = package["Version"]
    return Component(
        type=ComponentType.APPLICATION if name == "dlx-router" else ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("pypi", name=name, version=version),
        scope=ComponentScope.REQUIRED if is_required else ComponentScope.OPTIONAL,
        licenses=[LicenseFactory().make_from_string(expression) for expression in _license(package)],
    )


def _license(package: "metadata.PackageMetadata") -> Iterator[str]:
    """One expression of SPDX, or what the classifiers say; some older packages put a whole text in the field."""
    if "License-Expression" in package:
        yield package["License-Expression"]
        return
    classifiers = package.get_all("Classifier") or []
    yield from sorted(
        {classifier.rpartition(" :: ")[2] for classifier in classifiers if classifier.startswith("License :: ")}
    )
