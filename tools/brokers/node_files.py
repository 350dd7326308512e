"""What a private node is told: its environment and the files in its work folder. All loopback, nothing shared."""

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MARK: Final = "DLX_ROUTER_BROKER"
"""The variable by which every process of a node is known; its value is the work folder."""

Certificates = tuple[Path, Path, Path]
"""CA, certificate and key, PEM files."""

_CONFIG: Final = {
    "listeners.tcp.1": "127.0.0.1:{amqp}",
    "log.console": "true",
    "log.console.level": "info",
    "collect_statistics_interval": "1000",
    "disk_free_limit.absolute": "64MB",
    "vm_memory_high_watermark.absolute": "1GB",
    "raft.wal_max_size_bytes": "64000000",
}
_MANAGEMENT: Final = {"management.tcp.ip": "127.0.0.1", "management.tcp.port": "{management}"}
_TLS: Final = {
    "listeners.ssl.1": "127.0.0.1:{amqps}",
    "ssl_options.cacertfile": "{here}/ca.pem",
    "ssl_options.certfile": "{here}/cert.pem",
    "ssl_options.keyfile": "{here}/key.pem",
    "ssl_options.verify": "verify_none",
}
_LOOPBACK: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
_IDLE: Final = "+sbwt none +sbwtdcpu none +sbwtdio none"  # schedulers that wait sleep: nodes share few cores
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(work: Path, here: str, ports: Mapping[str, int]) -> dict[str, str]:
    """For the server and for rabbitmqctl. `here` is the work folder as the node sees it."""
    path = _PATH if here != str(work) else f"{os.environ.get('PATH', '')}:{_PATH}"
    return {
        MARK: str(work),
        "PATH": path,
        "LANG": "C.UTF-8",
        "HOME": here,
        "ERL_EPMD_PORT": str(ports["epmd"]),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_CRASH_DUMP_SECONDS": "0",  # no dump in somebody's working directory
        "RABBITMQ_NODENAME": f"n{ports['amqp']}@localhost",
        "RABBITMQ_DIST_PORT": str(ports["dist"]),
        "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq.conf",
        "RABBITMQ_ADVANCED_CONFIG_FILE": f"{here}/advanced.config",
        "RABBITMQ_CONF_ENV_FILE": f"{here}/environment",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/enabled_plugins",
        "RABBITMQ_GENERATED_CONFIG_DIR": f"{here}/generated",
        "RABBITMQ_MNESIA_BASE": f"{here}/data",
        "RABBITMQ_FEATURE_FLAGS_FILE": f"{here}/feature_flags",
        "RABBITMQ_PLUGINS_EXPAND_DIR": f"{here}/plugins",
        "RABBITMQ_PID_FILE": f"{here}/pid",
        "RABBITMQ_LOG_BASE": f"{here}/log",
        "RABBITMQ_LOGS": "-",
        "RUNNING_UNDER_SYSTEMD": "true",  # the start script then becomes the node, and a signal reaches it
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{_IDLE} {_LOOPBACK}",
        "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK,
    }


def write(
    work: Path,
    here: str,
    *,
    ports: Mapping[str, int],
    plugins: tuple[str, ...],
    config: Mapping[str, str],
    tls: Certificates | None,
) -> None:
    """Everything that `environment` points to is in `work`; `config` wins over our lines of rabbitmq.conf."""
    management = _MANAGEMENT if "rabbitmq_management" in plugins else {}
    lines = {**_CONFIG, **management, **(_TLS if tls else {})}
    values = {**ports, "here": here}
    settings = {key: value.format_map(values) for key, value in lines.items()} | dict(config)
    files = {
        "rabbitmq.conf": "".join(f"{key} = {value}\n" for key, value in settings.items()),
        "advanced.config": "[].\n",
        "environment": "",
        "enabled_plugins": f"[{','.join(plugins)}].\n",
        "hosts": f"127.0.0.1 localhost {socket.gethostname()}\n",
        "groups": "",
        "node.log": "",
    }
    for name, text in files.items():
        (work / name).write_text(text, encoding="utf-8")
    for name, source in zip(("ca.pem", "cert.pem", "key.pem"), tls or (), strict=False):
        shutil.copyfile(source, work / name)


def write_cookie(work: Path, cookie: str) -> None:
    """Nodes and tools that have the same one may talk to each other."""
    (work / ".erlang.cookie").write_text(cookie, encoding="utf-8")
    (work / ".erlang.cookie").chmod(0o400)  # Erlang refuses a cookie that others can read
