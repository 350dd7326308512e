"""A folder of policy files → one revision of policies, or all the errors of all files at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dlx_router.config.findings import (
    BAD_VALUE,
    DUPLICATE_NAME,
    UNREADABLE,
    Finding,
    PolicyErrors,
    Report,
    Severity,
    shown,
)
from dlx_router.config.language import yaml_tree
from dlx_router.config.language.regex import search_all
from dlx_router.config.lint import policy_conflicts, selector_scope
from dlx_router.config.policy_files import attachments as attachments_of
from dlx_router.config.policy_files import delayed_exchanges as delayed_of
from dlx_router.config.policy_files import document
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names
from dlx_router.core.policy import OURS, Policy, PolicySet, ordered

__all__ = ["Attachment", "Finding", "LoadedPolicies", "PolicyErrors", "Severity", "load_policies"]

SUFFIXES: Final = (".yaml", ".yml")
TEST_SUFFIX: Final = ".test.yaml"


@dataclass(frozen=True, slots=True)
class LoadedPolicies:
    """Policies without errors. `warnings` are worth a look but do not keep a router from starting."""

    policies: PolicySet
    attachments: tuple[Attachment, ...] = ()
    warnings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
    delayed: tuple[Delayed, ...] = ()

    def require_types(self, *, told: bool) -> None:
        """Raise PolicyErrors where a policy is for queues of one type, and nobody tells types."""
        if not told and (errors := _needs_types(self)):
            raise PolicyErrors(errors)

    def require_served(self, vhosts: Sequence[str]) -> None:
        """Raise PolicyErrors where anything is for a vhost that is not among `vhosts`; `*` serves all."""
        if "*" in vhosts:
            return
        places = [(f"policy {shown(policy.name)}", policy.vhost, policy.source) for policy in self.policies.policies]
        places += [
            (f"attachment {shown(attachment.queue)}", attachment.vhost, attachment.source)
            for attachment in self.attachments
        ]
        places += [(f"delayed exchange {shown(entry.exchange)}", entry.vhost, entry.source) for entry in self.delayed]
        if errors := policy_conflicts.not_served(places, vhosts):
            raise PolicyErrors(errors)

    def believed(self, vhost: str) -> frozenset[str]:
        """The exchanges by which attachments of this vhost say that the broker brings dead letters."""
        here = [attachment for attachment in self.attachments if attachment.vhost in {None, vhost}]
        return frozenset(exchange for attachment in here for exchange in attachment.dead_letter_exchanges or ())


def _needs_types(loaded: LoadedPolicies) -> list[Finding]:
    message = "apply-to: {} needs the management API, which alone tells a queue's type; set DLX_ROUTER_MANAGEMENT_URL"
    return [
        Finding(policy.source.file, policy.source.line, BAD_VALUE, Severity.ERROR, message.format(policy.apply_to))
        for policy in loaded.policies.policies
        if policy.apply_to != "queues"
    ]


def load_policies(folder: Path, names: Names = OURS) -> LoadedPolicies:
    """The policies of a folder, or of a single file. Raises PolicyErrors, and nothing else, with all that is wrong.

    `names` are the router's own, which no policy may claim, or name as a target.

    The revision is 12 hex digits over names and contents of the files, so that equal folders are equal anywhere.
    """
    files = _files(folder)
    findings: list[Finding] = []
    policies: list[Policy] = []
    attachments: list[Attachment] = []
    delayed: list[Delayed] = []
    digest = blake2b(digest_size=6)
    for file in files:
        report = Report(str(file))
        if (data := read_file(file, report)) is not None:
            _digest(digest, file, data)
            parsed, attached, late = document.read(yaml_tree.parse(data, report), report)
            policies += parsed
            attachments += attached
            delayed += late
        findings += report.findings
    loaded = ordered(policies, digest.hexdigest(), search_all, names)
    findings += [*_repeated(policies), *policy_conflicts.findings_of(loaded)]
    findings += [*attachments_of.findings_of(attachments, loaded, names), *delayed_of.findings_of(delayed, names)]
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise PolicyErrors(findings)
    findings += [*selector_scope.findings_of(loaded), *attachments_of.doubts_of(attachments, loaded, names)]
    return LoadedPolicies(loaded, tuple(attachments), tuple(sorted(findings)), tuple(map(str, files)), tuple(delayed))


def errors_of(policies: Sequence[Policy], names: Names) -> list[Finding]:
    """For which of their meanings `load_policies` would refuse these policies."""
    loaded = ordered([*policies], "", search_all, names)
    findings = [*_repeated([*policies]), *policy_conflicts.findings_of(loaded)]
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def fingerprint(folder: Path) -> str:
    """Another text whenever `load_policies` would read something else: its revision where all can be read. No errors.

    Contents are compared, not times: a link that was turned to another folder, as Kubernetes does, keeps the latter.
    """
    digest, report = blake2b(digest_size=6), Report(str(folder))
    try:
        for file in _files(folder):
            if (data := read_file(file, report)) is not None:
                _digest(digest, file, data)
    except PolicyErrors as error:
        return str(error)
    return "\n".join([digest.hexdigest(), *map(str, report.findings)])


def _files(folder: Path) -> list[Path]:
    """The policy files in order of their names; a link that leads nowhere is one too, so that it is not overlooked."""
    report = Report(str(folder))
    try:
        if folder.is_file():
            return [folder]
        files = sorted(
            file for file in folder.iterdir() if _is_policy(file.name) and (file.is_file() or file.is_symlink())
        )
    except (OSError, ValueError) as error:
        report.error(UNREADABLE, 1, why_unreadable(error))
        raise PolicyErrors(report.findings) from None
    if not files:
        report.error(UNREADABLE, 1, "no policy file (*.yaml, *.yml) in this folder; name the folder that holds them")
        raise PolicyErrors(report.findings)
    return files


def _is_policy(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not has_tests(name) and not name.startswith(".")


def has_tests(name: str) -> bool:
    """Whether a file of this name has tests of policies; capitals make no difference, as in all names of our files."""
    return name.lower().endswith(TEST_SUFFIX)


def read_file(file: Path, report: Report) -> bytes | None:
    """The content, a byte more than may be used at most; None where the report says why it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(yaml_tree.MAX_BYTES + 1)
    except OSError as error:
        report.error(UNREADABLE, 1, why_unreadable(error))
        return None


def why_unreadable(error: OSError | ValueError) -> str:
    """What to tell a person about a path."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {reason}; name a path that can"


def _digest(digest: blake2b, file: Path, data: bytes) -> None:
    name = file.name.encode(errors="surrogateescape")
    digest.update(b"%d %d %b%b" % (len(name), len(data), name, data))


def _repeated(policies: Sequence[Policy]) -> list[Finding]:
    first: dict[str, Policy] = {}
    findings: list[Finding] = []
    for policy in policies:
        known = first.setdefault(policy.name, policy)
        if known is not policy:
            message = f"policy {shown(policy.name)} is there already ({known.source}); give this one another name"
            findings.append(Finding(policy.source.file, policy.source.line, DUPLICATE_NAME, Severity.ERROR, message))
    return findings
