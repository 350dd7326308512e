"""Write charts/dlx-router/README.md: its table of values is made from values.yaml and the comments there (`# -- …`)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from dlx_router import __version__

CHART: Final = Path(__file__).parents[2] / "charts" / "dlx-router"
PAGE: Final = CHART / "README.md"
SAYS: Final = "# -- "
INTRO: Final = """# dlx-router

A dead-letter system for RabbitMQ. Written by tools/pages/chart_readme.py from values.yaml; do not edit.

```console
docker build --target router --tag REGISTRY/dlx-router:VERSION . && docker push REGISTRY/dlx-router:VERSION
kubectl create secret generic rabbit --from-literal=amqp-url=amqp://USER:PASSWORD@HOST:5672/
helm install dlx-router charts/dlx-router --set image.repository=REGISTRY/dlx-router --set amqp.existingSecret=rabbit \\
  --set-file 'policies.files.orders\\.yaml=orders.yaml'
```

* The image's tag is the chart's `appVersion`, and nodes keep what they pulled (`IfNotPresent`): an image that is built
  anew **under the same tag rolls nothing**. Between releases all commits have one version, so give each build a tag of
  its own and name it by `image.tag`, or name the build itself by `image.digest`.
* Secrets are never values: name the Secrets that exist; they are mounted as files and read anew at each connect.
* Policies come from `policies.files` or from a ConfigMap of yours. The whole folder is mounted, so a change reaches the
  running routers; a set that does not parse is refused and the old one stays in force. Files of yours come beside
  `default.yaml`, which selects every queue: `--set 'policies.files.default\\.yaml=null'` beside them leaves it out.
  Without any policy file the router would not start, so that is refused.
* More than one replica needs `provenance.existingSecret`, and so does a rolling update; without it, or with
  `index.existingClaim`, the one pod is replaced (`Recreate`), and letters wait in the inbox meanwhile. Give it at the
  first install, though one replica needs none: [the shared key](#the-shared-key).
* The API, and with it commands and console, answers nobody before `api.tokensSecret` names a Secret with a file of
  tokens. With `api.commandKey` commands in the pod have one of them: `kubectl exec deploy/NAME -- dlx-router queues`.
  Who may do that can read the pod's Secrets anyway. To come by the pod's loopback is not enough, because so does
  what a port-forward or a proxy beside the router brings.
* What cannot work is refused by `helm template` already, with the way out. Upgrade with `--reset-then-reuse-values`
  (Helm 3.14): by `--reuse-values` the defaults of values that are new in a chart are missing, and Helm gives up.

## The shared key

A router alone, without `provenance.existingSecret`, signs what it writes with a key that it keeps in its state queue.
Letters that wait when a Secret is named later, or when its content is changed, are signed by the key of before: the
router does not obey that any more, and puts each into quarantine as its wait ends. Nothing is lost, but somebody has to
look at them. So, for a change of the key:

1. wait until `sum(dlx_router_waiting)` is 0 and nothing lies in `dlx-router.release`; where letters fail all the
   time, let policies say `max-delivery-attempts: 1` until then: what dies meanwhile is dead-lettered, and can be
   redriven;
2. `kubectl scale deployment/NAME --replicas=0`: two routers with two keys would not obey each other. With
   `keda.enabled` KEDA would undo that; pause it, at none, instead:
   `kubectl annotate scaledobject/NAME autoscaling.keda.sh/paused-replicas=0`;
3. `helm upgrade` with the Secret, and with KEDA
   `kubectl annotate scaledobject/NAME autoscaling.keda.sh/paused-replicas-` after it. Letters that lie in dead-letter
   queues are not affected.

## Scaling by KEDA

`keda.enabled` makes a ScaledObject that asks RabbitMQ for the length of the inbox. What it brings, and what not:

* A replica takes CPU of its own, and the broker still does the larger part of the work. Where broker and router share
  a small machine, two processes on one inbox settled 0.94 to 1.07 times what one did (docs/performance.md). It pays
  where the router's core is full and the broker's are not.
* One replica leads: redrive tasks and the index do not become faster. `ordering: fifo` is one letter at a time, by one
  replica.
* The breaker of `outage:` is per replica: more replicas send more probes.
* It is never scaled to none: waits that end, redrive tasks and the index need a router though the inbox is empty.
* A replica that goes drains first (`settings.drainSeconds`); what it cannot finish goes back to the inbox.

Give KEDA a user of its own, not the router's. What the chart renders is checked by the tests; it was not tried in a
cluster with KEDA.

## Alerts

`monitoring.prometheusRule` looks at the series of this release alone where `monitoring.serviceMonitor` is enabled too,
or where `series` says by which labels they are known: so an installation that fails is not hidden by another one in the
same Prometheus, and an observer beside it (`settings.observe`) raises no alert of its neighbour. What its rules record
has these labels too, and its alerts look at no other's records. `DeadLettersDropped` alone is about the broker's own
series, which belong to no release.

## As a sidecar

The router needs no place beside the broker, but it may have one. In a pod template of yours:

```yaml
terminationGracePeriodSeconds: 40 # to drain takes 25 s and at most 12 more
securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
containers:
  - name: dlx-router
    image: dlx-router:VERSION
    args: [run]
    env:
      - {name: DLX_ROUTER_AMQP_URL_FILE, value: /etc/dlx-router/amqp/url}
      - {name: DLX_ROUTER_HTTP_HOST, value: "0.0.0.0"}
    ports: [{name: http, containerPort: 9719}]
    readinessProbe: {httpGet: {path: /readyz, port: http}, timeoutSeconds: 3}
    livenessProbe: {httpGet: {path: /livez, port: http}, timeoutSeconds: 5, failureThreshold: 6}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts:
      - {name: amqp, mountPath: /etc/dlx-router/amqp, readOnly: true}
      - {name: policies, mountPath: /policies, readOnly: true}
volumes:
  - {name: amqp, secret: {secretName: rabbit, items: [{key: amqp-url, path: url}]}}
  - {name: policies, configMap: {name: our-policies}}
```

With several such pods every sidecar is a replica: give all of them the same `DLX_ROUTER_PROVENANCE_KEY_FILE`.

## Values

| value | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole README."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    comments = _comments(text)
    rows = (
        f"| `{name}` | {_shown(value)} | {comments.get(name, '')} |" for name, value in leaves(yaml.safe_load(text))
    )
    return INTRO.replace("VERSION", __version__) + "\n".join(rows) + "\n"


def leaves(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Full name and default of each value."""
    for key, value in values.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, dict) and value and name not in {"policies.files", "resources"}:
            yield from leaves(value, name)
        else:
            yield name, value


def _comments(text: str) -> dict[str, str]:
    """Full name → the comment above it from its `# -- ` on, by indentation."""
    comments: dict[str, str] = {}
    path: list[str] = []
    comment = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith(SAYS):
            comment = bare.removeprefix(SAYS)
        elif comment and bare.startswith("# "):
            comment += bare.removeprefix("#")
        elif bare and not bare.startswith("#") and ":" in bare:
            depth = (len(line) - len(line.lstrip())) // 2
            path = [*path[:depth], bare.partition(":")[0]]
            comments[".".join(path)], comment = comment, ""
    return comments


def _shown(value: object) -> str:
    if isinstance(value, dict) and "default.yaml" in value:
        return "five attempts for everything"
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip().removesuffix("...").strip()
    return f"`{text}`"


def main() -> int:
    """0: written."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
