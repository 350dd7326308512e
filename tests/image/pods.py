"""Pods of the chart, played by podman: what kubelet does around them is done here, as it does it.

Podman reads the pod: image, arguments, environment, security context, limits. From us it gets the volumes as folders,
because it copies a ConfigMap once where kubelet goes on replacing its files; and we ask the probes, because podman
makes `curl` of them and has systemd begin it.
"""

import base64
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.support.answers import status_and_text
from tests.support.eventually import eventually
from tools.containers.engine import Engine

Objects = list[dict[str, Any]]
FS_GROUP: Final = 10001


def keep_up(folder: Path, files: Mapping[str, str]) -> None:
    """A volume of a ConfigMap or Secret, replaced at once as kubelet does it: `..data` is a link that is renamed."""
    new = folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S')}.{secrets.token_hex(4)}"
    new.mkdir(parents=True)
    for name, text in files.items():
        (new / name).write_text(text, encoding="utf-8")
        (new / name).chmod(0o640)
        os.chown(new / name, 0, FS_GROUP)  # what fsGroup does to a volume
    old = (folder / "..data").resolve() if (folder / "..data").exists() else None
    (folder / "..data_tmp").symlink_to(new.name)
    (folder / "..data_tmp").rename(folder / "..data")
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for gone in [
        entry for entry in folder.iterdir() if entry.is_symlink() and entry.name != "..data" and not entry.exists()
    ]:
        gone.unlink()
    for entry in sorted(old.iterdir()) if old else []:
        entry.unlink()
    if old:
        old.rmdir()


class Pod:
    """One pod of a rendered template; `volumes` are folders by the name that the pod calls them."""

    def __init__(self, engine: Engine, template: Mapping[str, Any], others: Objects, folder: Path, name: str) -> None:
        """`others`: ConfigMaps and Secrets that it may name. `folder`: empty, its volumes come to lie there."""
        self.engine = engine
        self.name = name
        self.spec: dict[str, Any] = json.loads(json.dumps(template["spec"]))
        self._labels = dict(template["metadata"].get("labels", {}))
        self._others = others
        self._file = folder / "pod.yaml"
        self._folder = folder
        (self.container,) = self.spec["containers"]
        self.volumes = {volume["name"]: self._volume(volume) for volume in self.spec["volumes"]}

    def play(self, network: str, image: str) -> None:
        """Its container was started when this returns."""
        # podman would publish a containerPort on every address of this machine
        left_out = {"ports", *(key for key in self.container if key.endswith("Probe"))}
        container = {key: value for key, value in self.container.items() if key not in left_out}
        container |= {"image": image, "imagePullPolicy": "Never"}
        volumes = [
            {"name": key, "hostPath": {"path": str(path), "type": "Directory"}} for key, path in self.volumes.items()
        ]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "labels": self._labels},
            "spec": {**self.spec, "containers": [container], "volumes": volumes},
        }
        needed = [manifest for manifest in self._others if manifest["kind"] == "ConfigMap"]  # for configMapKeyRef
        self._file.write_text(yaml.safe_dump_all([*needed, pod]), encoding="utf-8")
        self.engine.run("kube", "play", "--network", network, str(self._file))

    def _volume(self, volume: Mapping[str, Any]) -> Path:
        folder = self._folder / "volumes" / str(volume["name"])
        folder.mkdir(parents=True)
        if "secret" in volume or "configMap" in volume:
            keep_up(folder, self._files(volume))
            return folder
        os.chown(folder, 0, FS_GROUP)
        folder.chmod(0o2770)
        return folder

    def _files(self, volume: Mapping[str, Any]) -> dict[str, str]:
        source = volume.get("secret") or volume["configMap"]
        kind, name = ("Secret", source.get("secretName")) if "secret" in volume else ("ConfigMap", source["name"])
        (manifest,) = [
            candidate
            for candidate in self._others
            if (candidate["kind"], candidate["metadata"]["name"]) == (kind, name)
        ]
        files = _texts(manifest)
        return {entry["path"]: files[entry["key"]] for entry in source["items"]} if "items" in source else files

    @property
    def address(self) -> str:
        """In the network of the pods."""
        networks = self.engine.inspect("container", f"{self.infra}")["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    @property
    def infra(self) -> str:
        """The container that keeps the pod's network."""
        return str(self.engine.inspect("pod", self.name)["InfraContainerID"])

    @property
    def running(self) -> str:
        """What podman calls its container."""
        return f"{self.name}-{self.container['name']}"

    def probe(self, which: str) -> bool:
        """Whether kubelet would be content: a GET on the pod's address, by the port's name, in the probe's time."""
        probe = self.container[f"{which}Probe"]
        (port,) = [
            entry["containerPort"] for entry in self.container["ports"] if entry["name"] == probe["httpGet"]["port"]
        ]
        url = f"http://{self.address}:{port}{probe['httpGet']['path']}"
        try:
            return 200 <= httpx.get(url, timeout=probe["timeoutSeconds"], trust_env=False).status_code < 400
        except httpx.TransportError:
            return False

    def await_ready(self) -> None:
        """Started within what its startup probe allows; alive; and ready."""
        probe = self.container["startupProbe"]
        allowed = probe["periodSeconds"] * probe["failureThreshold"]
        eventually(lambda: self._content("startup"), within=allowed, every=0.2)
        eventually(lambda: self._content("readiness"), within=60, every=0.2)
        assert self.probe("liveness")

    def _content(self, which: str) -> bool:
        assert self.probe(which), f"{which} of {self.name}: {self.ask('/readyz')}\n{self.output[-3000:]}"
        return True

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of a GET on its port; (0, why) if nobody answers."""
        with httpx.Client(base_url=f"http://{self.address}:9719", timeout=5, trust_env=False) as http:
            return status_and_text(http, path)

    @property
    def state(self) -> dict[str, Any]:
        """Of its container: Running, ExitCode and so on."""
        state: dict[str, Any] = self.engine.inspect("container", self.running)["State"]
        return state

    @property
    def pid(self) -> int:
        """Of the router, as this machine counts."""
        return int(self.state["Pid"])

    @property
    def memory_limit(self) -> int:
        """Bytes, as podman understood the pod."""
        return int(self.engine.inspect("container", self.running)["HostConfig"]["Memory"])

    @property
    def restarts(self) -> int:
        """How often podman began it again."""
        return int(self.engine.inspect("container", self.running)["RestartCount"])

    @property
    def output(self) -> str:
        """All that its container printed."""
        done = self.engine.tried("logs", self.running)
        return done.stdout + done.stderr

    def within(self, *argv: str) -> str:
        """What a command in its container printed."""
        return self.engine.run("exec", self.running, *argv)

    def delete(self) -> int:
        """As kubelet does it: SIGTERM, and SIGKILL after the grace that the pod has; the exit code."""
        grace = int(self.spec["terminationGracePeriodSeconds"])
        self.engine.run("stop", "--time", str(grace), self.running, within_s=grace + 30)
        return int(self.state["ExitCode"])

    def close(self) -> None:
        """Nothing of it is left."""
        self.engine.tried("pod", "rm", "--force", "--time", "0", self.name)


def _texts(manifest: Mapping[str, Any]) -> dict[str, str]:
    data: dict[str, str] = manifest.get("data", {})
    if manifest["kind"] == "ConfigMap":
        return data
    plain: dict[str, str] = manifest.get("stringData", {})
    return {key: base64.b64decode(text).decode() for key, text in data.items()} | plain
