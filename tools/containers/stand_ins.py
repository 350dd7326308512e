"""Base images where no registry is asked: Debian unpacked by debootstrap, named as Dockerfile and compose name them.

What they are not: python is Debian 12's own (3.11), Prometheus that of this machine, and their entry points are ours.
Grafana has none.
"""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.brokers import programs
from tools.containers.engine import Engine, EngineMissingError

PYTHON: Final = "docker.io/library/python:3.12-slim-bookworm"
BROKER: Final = "docker.io/library/rabbitmq:4.3-management"
PROMETHEUS: Final = "docker.io/prom/prometheus:v3.5.0"
_VERSION: Final = "4.3"
_PYTHON_PACKAGES: Final = ("ca-certificates", "netbase", "tzdata", "python3", "python3-venv")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What Debian's slim images leave out too.
_LEFT_OUT: Final = (
    "var/lib/apt/lists/*",
    "var/cache/*",
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/locale/*",
    "usr/share/info/*",
    "dev/*",
    "proc/*",
    "sys/*",
)
_PYTHON: Final = """
FROM unpacked-python
RUN ln -s /usr/bin/python3 /usr/local/bin/python
CMD ["python3"]
"""
# As the official image: plugins are on, the data are a volume of the user rabbitmq, RABBITMQ_DEFAULT_USER names a user.
_BROKER: Final = """
FROM unpacked-broker
RUN printf '[rabbitmq_management,rabbitmq_prometheus].\\n' > /etc/rabbitmq/enabled_plugins \\
    && printf 'loopback_users = none\\nvm_memory_high_watermark.absolute = 1GB\\ndisk_free_limit.absolute = 64MB\\n' \\
        > /etc/rabbitmq/rabbitmq.conf
ENV PATH={sbin}:{path} HOME=/var/lib/rabbitmq LANG=C.UTF-8 RABBITMQ_LOGS=- RUNNING_UNDER_SYSTEMD=true
USER rabbitmq
WORKDIR /var/lib/rabbitmq
VOLUME /var/lib/rabbitmq
EXPOSE 5672 15672 15692
CMD ["rabbitmq-server"]
"""
_PROMETHEUS: Final = """
FROM {python}
COPY prometheus /bin/prometheus
RUN install --directory --owner=65534 --group=65534 /prometheus
USER 65534
WORKDIR /prometheus
VOLUME /prometheus
EXPOSE 9090
# Debian writes elsewhere where nothing is said
ENTRYPOINT ["/bin/prometheus", "--storage.tsdb.path=data/"]
"""


def provide(engine: Engine, *names: str) -> None:
    """Each of these base images is here; on Docker the registry's are pulled when they are wanted."""
    if not engine.is_podman:
        return
    for name in names:
        recipe, make = _MAKERS[name]
        mark = f"{name}-{hashlib.sha256(repr((recipe, _LEFT_OUT)).encode()).hexdigest()[:12]}"
        if not engine.has_image(mark):
            print(f"Making {name} of Debian ...", flush=True)
            make(engine)
            engine.run("tag", name, mark)  # made by this recipe, and not by one that was changed since


def _python(engine: Engine) -> None:
    root = programs.cache().parent / "containers" / "python-bookworm"
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        programs.debootstrap("bookworm", root, *_PYTHON_PACKAGES)
    _import(engine, root, "unpacked-python")
    _built(engine, PYTHON, _PYTHON)


def _broker(engine: Engine) -> None:
    """From the release that the other tests run their nodes of."""
    programs.unpack(_VERSION)
    program = programs.unpacked(_VERSION)
    if program is None or program.root is None:
        message = f"RabbitMQ {_VERSION} cannot be unpacked here"
        raise EngineMissingError(message)
    _import(engine, program.root, "unpacked-broker")
    _built(engine, BROKER, _BROKER.format(sbin=program.sbin, path=_PATH))


def _prometheus(engine: Engine) -> None:
    program = shutil.which("prometheus")
    if program is None:
        raise EngineMissingError("no program prometheus here; make test-image installs it as root on Debian")
    provide(engine, PYTHON)
    _built(engine, PROMETHEUS, _PROMETHEUS.format(python=PYTHON), {"prometheus": Path(program)})


_MAKERS: Final[Mapping[str, tuple[str, Callable[[Engine], None]]]] = {
    PYTHON: (_PYTHON, _python),
    BROKER: (_BROKER, _broker),
    PROMETHEUS: (_PROMETHEUS, _prometheus),
}


def _import(engine: Engine, root: Path, name: str) -> None:
    with tempfile.TemporaryDirectory(dir=engine.home) as folder:
        archive = Path(folder) / "root.tar"
        skipped = [f"--exclude=./{pattern}" for pattern in _LEFT_OUT]
        subprocess.run(["tar", "-C", str(root), *skipped, "-cf", str(archive), "."], check=True)
        engine.run("import", "--change", f"ENV PATH={_PATH}", "--change", "ENV LANG=C.UTF-8", str(archive), name)


def _built(engine: Engine, name: str, text: str, files: Mapping[str, Path] | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(text, encoding="utf-8")
        for inside, path in (files or {}).items():
            shutil.copyfile(path, Path(folder) / inside)
            (Path(folder) / inside).chmod(0o755)
        engine.build(Path(folder), tag=name)
