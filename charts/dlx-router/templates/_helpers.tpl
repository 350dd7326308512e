{{- define "dlx-router.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "dlx-router.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "dlx-router.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "dlx-router.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "dlx-router.selector" -}}
app.kubernetes.io/name: {{ include "dlx-router.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: router
{{- end }}

{{- define "dlx-router.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ include "dlx-router.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "dlx-router.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "dlx-router.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "dlx-router.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "dlx-router.policies" -}}
{{- default (printf "%s-policies" (include "dlx-router.fullname" .)) .Values.policies.existingConfigMap }}
{{- end }}

{{/* The page of the console in an alert's console_url, without the label that files/rules.yaml has the console from. */}}
{{- define "dlx-router.console.page" -}}
{{- regexReplaceAll `^\{\{ with \$externalLabels\.dlx_console \}\}\{\{ \. \}\}(.*)\{\{ end \}\}$` . "${1}" }}
{{- end }}

{{/* Labels by which Prometheus knows the series of this release; "" where nobody can say. */}}
{{- define "dlx-router.series" -}}
{{- if .Values.monitoring.prometheusRule.series }}{{ .Values.monitoring.prometheusRule.series }}
{{- else if .Values.monitoring.serviceMonitor.enabled }}namespace="{{ .Release.Namespace }}",job="{{ include "dlx-router.fullname" . }}"
{{- end }}
{{- end }}

{{- define "dlx-router.keda.authentication" -}}
{{- default (include "dlx-router.fullname" .) .Values.keda.triggerAuthentication }}
{{- end }}

{{/* on, https or off. */}}
{{- define "dlx-router.console" -}}
{{- if not .Values.console.enabled }}off
{{- else if or .Values.console.https (and .Values.ingress.enabled .Values.ingress.tlsSecret) }}https
{{- else }}on
{{- end }}
{{- end }}

{{/* Where people find it; "" where nobody said so. */}}
{{- define "dlx-router.console.url" -}}
{{- if .Values.console.url }}{{ .Values.console.url }}
{{- else if and .Values.ingress.enabled .Values.console.enabled }}{{ ternary "https" "http" (eq (include "dlx-router.console" .) "https") }}://{{ .Values.ingress.host }}
{{- end }}
{{- end }}

{{/* How many routers there may be at once, but for a rolling update. */}}
{{- define "dlx-router.most" -}}
{{- ternary .Values.keda.maxReplicas .Values.replicaCount .Values.keda.enabled }}
{{- end }}

{{- define "dlx-router.pullSecrets" -}}
{{- range .Values.imagePullSecrets }}
- name: {{ . }}
{{- end }}
{{- end }}

{{/* Names that are the router's own, besides addresses and those of the cluster. */}}
{{- define "dlx-router.hosts" -}}
{{- $names := list }}
{{- if .Values.ingress.enabled }}{{- $names = append $names .Values.ingress.host }}{{- end }}
{{- with .Values.console.allowedHosts }}{{- $names = append $names . }}{{- end }}
{{- join "," $names }}
{{- end }}

{{/* What cannot work is refused here, with the way out. */}}
{{- define "dlx-router.check" -}}
{{- if not .Values.amqp.existingSecret }}
{{- fail "amqp.existingSecret is empty: name the Secret that holds the broker's URL, for example kubectl create secret generic dlx-router-amqp --from-literal=amqp-url=amqp://USER:PASSWORD@HOST:5672/" }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.provenance.existingSecret) }}
{{- fail (printf "replicaCount is more than 1 and provenance.existingSecret is empty: %s" (include "dlx-router.provenance.why" .)) }}
{{- end }}
{{- if .Values.keda.enabled }}
{{- if and (gt (int .Values.keda.maxReplicas) 1) (not .Values.provenance.existingSecret) }}
{{- fail (printf "keda.maxReplicas is more than 1 and provenance.existingSecret is empty: %s" (include "dlx-router.provenance.why" .)) }}
{{- end }}
{{- if lt (int .Values.keda.maxReplicas) (int .Values.keda.minReplicas) }}
{{- fail "keda.maxReplicas is less than keda.minReplicas: raise the one or lower the other" }}
{{- end }}
{{- if not (or .Values.keda.existingSecret .Values.keda.triggerAuthentication) }}
{{- fail "keda.enabled needs keda.existingSecret, a Secret that holds the broker's URL for KEDA, or keda.triggerAuthentication" }}
{{- end }}
{{- end }}
{{- if .Values.ingress.enabled }}
{{- if not .Values.ingress.host }}
{{- fail "ingress.enabled needs ingress.host: the name by which people come" }}
{{- end }}
{{- if not (or .Values.api.tokensSecret .Values.console.sso.proxies) }}
{{- fail "ingress.enabled, and nobody could log in: name api.tokensSecret, a Secret with a file of tokens, or console.sso.proxies" }}
{{- end }}
{{- end }}
{{- if and .Values.console.sso.roles (not .Values.console.sso.proxies) }}
{{- fail "console.sso.roles needs console.sso.proxies: the addresses of the proxy that logs people in" }}
{{- end }}
{{- if and .Values.console.sso.proxies (not .Values.console.sso.roles) }}
{{- fail "console.sso.proxies needs console.sso.roles: which group may what, sre=admin,ops=operator,*=viewer" }}
{{- end }}
{{- if and .Values.index.existingClaim (gt (int (include "dlx-router.most" .)) 1) }}
{{- fail "index.existingClaim is one claim, and each of several routers needs an index of its own: leave it empty, each pod makes its own from the journal" }}
{{- end }}
{{- if ge (int .Values.settings.drainSeconds) (int .Values.terminationGracePeriodSeconds) }}
{{- fail "settings.drainSeconds is not less than terminationGracePeriodSeconds: the router would be killed while it drains; raise terminationGracePeriodSeconds" }}
{{- end }}
{{- if and (has "*" (splitList "," (nospace .Values.settings.vhosts))) (not .Values.management.existingSecret) }}
{{- fail "settings.vhosts of * needs management.existingSecret, where the vhosts are asked for; or name the vhosts" }}
{{- end }}
{{- if and .Values.webhooks.existingSecret (eq .Values.settings.journal "off") }}
{{- fail "webhooks.existingSecret needs settings.journal other than off: groups, and what was told, stand there" }}
{{- end }}
{{- if and .Values.tls.certKey (not .Values.tls.existingSecret) }}
{{- fail "tls.certKey needs tls.existingSecret: the Secret that has the certificate" }}
{{- end }}
{{- if and .Values.tls.certKey (not .Values.tls.keyKey) }}
{{- fail "tls.certKey is set and tls.keyKey is not: a certificate needs its key" }}
{{- end }}
{{- if and .Values.pipeline.enabled (or (contains "," .Values.settings.vhosts) (contains "*" .Values.settings.vhosts)) (not (contains "vhost=" (join " " .Values.pipeline.args))) }}
{{- fail "pipeline.enabled archives the journal of one vhost, and settings.vhosts names several: add --option and vhost=NAME to pipeline.args for the one that you mean, and give each other vhost a CronJob and an archive of its own" }}
{{- end }}
{{- if and .Values.pipeline.enabled (not .Values.pipeline.archiveClaim) }}
{{- fail "pipeline.enabled needs pipeline.archiveClaim: the claim that the archive lies on" }}
{{- end }}
{{- end }}

{{/* The environment of router and pipeline: where the broker is, by files. */}}
{{- define "dlx-router.connection.env" -}}
- name: DLX_ROUTER_AMQP_URL_FILE
  value: /etc/dlx-router/amqp/url
{{- if .Values.management.existingSecret }}
- name: DLX_ROUTER_MANAGEMENT_URL_FILE
  value: /etc/dlx-router/management/url
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: DLX_ROUTER_TLS_CA
  value: /etc/dlx-router/tls/ca
{{- if .Values.tls.certKey }}
- name: DLX_ROUTER_TLS_CERT
  value: /etc/dlx-router/tls/cert
- name: DLX_ROUTER_TLS_KEY
  value: /etc/dlx-router/tls/key
{{- end }}
{{- end }}
{{- if .Values.tls.serverName }}
- name: DLX_ROUTER_TLS_SERVER_NAME
  value: {{ .Values.tls.serverName | quote }}
{{- end }}
- name: DLX_ROUTER_PREFIX
  value: {{ .Values.settings.prefix | quote }}
{{- end }}

{{- define "dlx-router.connection.mounts" -}}
- {name: amqp, mountPath: /etc/dlx-router/amqp, readOnly: true}
{{- if .Values.management.existingSecret }}
- {name: management, mountPath: /etc/dlx-router/management, readOnly: true}
{{- end }}
{{- if .Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/dlx-router/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "dlx-router.connection.volumes" -}}
- name: amqp
  secret:
    secretName: {{ .Values.amqp.existingSecret }}
    items: [{key: {{ .Values.amqp.key }}, path: url}]
{{- if .Values.management.existingSecret }}
- name: management
  secret:
    secretName: {{ .Values.management.existingSecret }}
    items: [{key: {{ .Values.management.key }}, path: url}]
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
    items:
      - {key: {{ .Values.tls.caKey }}, path: ca}
      {{- if .Values.tls.certKey }}
      - {key: {{ .Values.tls.certKey }}, path: cert}
      - {key: {{ .Values.tls.keyKey }}, path: key}
      {{- end }}
{{- end }}
{{- end }}

{{/* The key that signs, for router and pipeline: nothing where there is no Secret. */}}
{{- define "dlx-router.provenance.env" -}}
{{- if .Values.provenance.existingSecret }}
- {name: DLX_ROUTER_PROVENANCE_KEY_FILE, value: /etc/dlx-router/provenance/key}
{{- end }}
{{- end }}

{{- define "dlx-router.provenance.mounts" -}}
{{- if .Values.provenance.existingSecret }}
- {name: provenance, mountPath: /etc/dlx-router/provenance, readOnly: true}
{{- end }}
{{- end }}

{{- define "dlx-router.provenance.volumes" -}}
{{- if .Values.provenance.existingSecret }}
- name: provenance
  secret:
    secretName: {{ .Values.provenance.existingSecret }}
    items: [{key: {{ .Values.provenance.key }}, path: key}]
{{- end }}
{{- end }}

{{/* Why several routers need it. */}}
{{- define "dlx-router.provenance.why" -}}
replicas must sign records with the same key, for example kubectl create secret generic dlx-router-provenance --from-literal=provenance-key=$(openssl rand -hex 32). Letters that wait were signed by the key of before and would go to quarantine: see chart README, The shared key
{{- end }}

{{- define "dlx-router.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "dlx-router.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
