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
app.kubernetes.io/name: {{ include "dlx-router.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: router
{{- end }}

{{- define "dlx-router.pipeline.selector" -}}
app.kubernetes.io/name: {{ include "dlx-router.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: pipeline
{{- end }}

{{- define "dlx-router.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/name: {{ include "dlx-router.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{/* Labels of an object, each once: the chart's, commonLabels, and the object's own, which win over common ones. */}}
{{- define "dlx-router.labelled" -}}
{{- $root := first . }}
{{- $labels := include "dlx-router.ownLabels" $root | fromYaml }}
{{- range $more := list $root.Values.commonLabels (last .) }}
{{- range $key, $value := $more }}{{- $_ := set $labels $key $value }}{{- end }}
{{- end }}
{{- toYaml $labels }}
{{- end }}

{{- define "dlx-router.labels" -}}
{{- include "dlx-router.labelled" (list . dict) }}
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

{{/* How rules keep these labels apart: what is recorded has them too, or no alert would find it by them. */}}
{{- define "dlx-router.series.by" -}}
{{- $names := list "namespace" "job" }}
{{- range regexFindAll `[a-zA-Z_][a-zA-Z0-9_]*(=|!=|=~|!~)"` . -1 }}
{{- $names = append $names (regexFind `^[a-zA-Z0-9_]+` .) }}
{{- end }}
{{- printf "by (%s" (join ", " (uniq $names)) }}
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
{{- ternary .Values.keda.maxReplicas .Values.replicaCount .Values.keda.enabled | int64 }}
{{- end }}

{{- define "dlx-router.pullSecrets" -}}
{{- range .Values.imagePullSecrets }}
- name: {{ . | quote }}
{{- end }}
{{- end }}

{{/* best-effort, required or off: to YAML 1.1 an off without quotes is false. */}}
{{- define "dlx-router.journal" -}}
{{- ternary "off" .Values.settings.journal (kindIs "bool" .Values.settings.journal) }}
{{- end }}

{{/* The vhosts that are named, commas between; "" where it is that of the URL. */}}
{{- define "dlx-router.vhosts" -}}
{{- $names := list }}
{{- range splitList "," .Values.settings.vhosts }}{{- $names = append $names (trim .) }}{{- end }}
{{- join "," (compact $names | uniq) }}
{{- end }}

{{/* Where commands in the pod find the API; "" where that is their default, 127.0.0.1. */}}
{{- define "dlx-router.commands.url" -}}
{{- $host := .Values.settings.httpHost }}
{{- if eq $host "::" }}http://[::1]:9719
{{- else if contains ":" $host }}http://[{{ $host }}]:9719
{{- else if ne $host "0.0.0.0" }}http://{{ $host }}:9719
{{- end }}
{{- end }}

{{/* Labels and names that are the chart's own: twice in one map they would be no YAML. */}}
{{- define "dlx-router.check.labels" -}}
{{- $own := include "dlx-router.ownLabels" . | fromYaml }}
{{- $monitoring := .Values.monitoring }}
{{- $pods := include "dlx-router.selector" . | fromYaml }}
{{- range $where, $given := dict "commonLabels" .Values.commonLabels "monitoring.serviceMonitor.labels" $monitoring.serviceMonitor.labels "monitoring.prometheusRule.labels" $monitoring.prometheusRule.labels "monitoring.dashboards.labels" $monitoring.dashboards.labels "podLabels" .Values.podLabels }}
{{- range $key, $_ := $given }}
{{- if hasKey (ternary $pods $own (eq $where "podLabels")) $key }}
{{- fail (printf "%s has %s: that label is the chart's own; take it out" $where $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "dlx-router.fullname" .)) }}
{{- fail (printf "the Service would be called %q, and such a name begins with a letter and has letters, digits and - only: set fullnameOverride" (include "dlx-router.fullname" .)) }}
{{- end }}
{{- end }}

{{/* The router does not start without a policy: tests of policies alone are none. */}}
{{- define "dlx-router.check.policies" -}}
{{- $files := list }}
{{- range $name, $_ := .Values.policies.files }}
{{- if not (hasSuffix ".test.yaml" $name) }}{{- $files = append $files $name }}{{- end }}
{{- end }}
{{- if not (or $files .Values.policies.existingConfigMap) }}
{{- fail "policies.files has no policy file, and without one the router does not start: give yours by --set-file 'policies.files.orders\\.yaml=orders.yaml', or name policies.existingConfigMap" }}
{{- end }}
{{- end }}

{{- define "dlx-router.check.images" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: name the repository that the router's image was pushed to, REGISTRY/dlx-router" }}
{{- end }}
{{- if and .Values.pipeline.enabled (not .Values.pipeline.image.repository) }}
{{- fail "pipeline.image.repository is empty: name the repository that the pipeline's image was pushed to, REGISTRY/dlx-router-pipeline" }}
{{- end }}
{{- end }}

{{- define "dlx-router.check.pipeline" -}}
{{- if .Values.pipeline.enabled }}
{{- if not .Values.pipeline.archiveClaim }}
{{- fail "pipeline.enabled needs pipeline.archiveClaim: the claim that the archive lies on" }}
{{- end }}
{{- if eq (include "dlx-router.journal" .) "off" }}
{{- fail "pipeline.enabled needs settings.journal other than off: the journal is what it archives" }}
{{- end }}
{{- $vhosts := splitList "," (include "dlx-router.vhosts" .) }}
{{- if and (or (gt (len $vhosts) 1) (has "*" $vhosts)) (not (include "dlx-router.pipeline.vhost" .)) }}
{{- fail "pipeline.enabled archives the journal of one vhost, and settings.vhosts names several: add --option and vhost=NAME to pipeline.args for the one that you mean, and give each other vhost a CronJob and an archive of its own" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The option of pipeline.args that names the vhost; "" where there is none. */}}
{{- define "dlx-router.pipeline.vhost" -}}
{{- range .Values.pipeline.args }}{{- if regexMatch "^(--option=)?vhost=" . }}{{ . }}{{ end }}{{- end }}
{{- end }}

{{/* The journal of the vhost that the router serves: without an option ingest reads that of the URL, which may be another. */}}
{{- define "dlx-router.pipeline.args" -}}
{{- $args := .Values.pipeline.args }}
{{- $vhost := include "dlx-router.vhosts" . }}
{{- if and $vhost (has "ingest" $args) (not (include "dlx-router.pipeline.vhost" .)) }}
{{- $args = concat $args (list "--option" (printf "vhost=%s" $vhost)) }}
{{- end }}
{{- toYaml $args }}
{{- end }}

{{/* Names that are the router's own, besides addresses and those of the cluster: also that to which links lead. */}}
{{- define "dlx-router.hosts" -}}
{{- $names := list }}
{{- if .Values.ingress.enabled }}{{- $names = append $names .Values.ingress.host }}{{- end }}
{{- with .Values.console.url }}{{- $names = append $names (urlParse .).hostname }}{{- end }}
{{- range splitList "," (nospace .Values.console.allowedHosts) }}{{- $names = append $names . }}{{- end }}
{{- $listed := list }}
{{- range compact $names }}{{- if not (contains ":" .) }}{{- $listed = append $listed . }}{{- end }}{{- end }}
{{- join "," (uniq $listed) }}
{{- end }}

{{/* What cannot work is refused here, with the way out. */}}
{{- define "dlx-router.check" -}}
{{- if not .Values.amqp.existingSecret }}
{{- fail "amqp.existingSecret is empty: name the Secret that holds the broker's URL, for example kubectl create secret generic dlx-router-amqp --from-literal=amqp-url=amqp://USER:PASSWORD@HOST:5672/" }}
{{- end }}
{{- if not (toYaml .Values) }}{{/* which says nothing where it cannot: all labels, or policies, would be missing */}}
{{- fail "a value has a control character that YAML does not take (of policies.files, an annotation, extraEnv ...): take it out" }}
{{- end }}
{{- include "dlx-router.check.images" . }}
{{- include "dlx-router.check.labels" . }}
{{- include "dlx-router.check.policies" . }}
{{- include "dlx-router.check.pipeline" . }}
{{- if and (gt (int (include "dlx-router.most" .)) 1) (not .Values.provenance.existingSecret) }}
{{- fail (printf "%s is more than 1 and provenance.existingSecret is empty: %s" (ternary "keda.maxReplicas" "replicaCount" .Values.keda.enabled) (include "dlx-router.provenance.why" .)) }}
{{- end }}
{{- if and .Values.api.commandKey (not .Values.api.tokensSecret) }}
{{- fail "api.commandKey needs api.tokensSecret: the Secret that has the tokens, and this one of them alone" }}
{{- end }}
{{- if .Values.keda.enabled }}
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
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.ingressFrom) }}
{{- fail "ingress.enabled, and networkPolicy.ingressFrom is empty: the ingress controller would be kept out, unless it runs in this namespace. Say where it runs, for example [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}], or [{podSelector: {}}] for this namespace" }}
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
{{- if gt (add (int .Values.settings.drainSeconds) 12) (int .Values.terminationGracePeriodSeconds) }}
{{- fail "settings.drainSeconds and the 12 s that the router then ends in are more than terminationGracePeriodSeconds: it would be killed before; raise terminationGracePeriodSeconds" }}
{{- end }}
{{- if and (has "*" (splitList "," (include "dlx-router.vhosts" .))) (not .Values.management.existingSecret) }}
{{- fail "settings.vhosts of * needs management.existingSecret, where the vhosts are asked for; or name the vhosts" }}
{{- end }}
{{- if and .Values.webhooks.existingSecret (eq (include "dlx-router.journal" .) "off") }}
{{- fail "webhooks.existingSecret needs settings.journal other than off: groups, and what was told, stand there" }}
{{- end }}
{{- if and .Values.tls.certKey (not .Values.tls.existingSecret) }}
{{- fail "tls.certKey needs tls.existingSecret: the Secret that has the certificate" }}
{{- end }}
{{- if and .Values.tls.certKey (not .Values.tls.keyKey) }}
{{- fail "tls.certKey is set and tls.keyKey is not: a certificate needs its key" }}
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
    secretName: {{ .Values.amqp.existingSecret | quote }}
    items: [{key: {{ .Values.amqp.key | quote }}, path: url}]
{{- if .Values.management.existingSecret }}
- name: management
  secret:
    secretName: {{ .Values.management.existingSecret | quote }}
    items: [{key: {{ .Values.management.key | quote }}, path: url}]
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret | quote }}
    items:
      - {key: {{ .Values.tls.caKey | quote }}, path: ca}
      {{- if .Values.tls.certKey }}
      - {key: {{ .Values.tls.certKey | quote }}, path: cert}
      - {key: {{ .Values.tls.keyKey | quote }}, path: key}
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
    secretName: {{ .Values.provenance.existingSecret | quote }}
    items: [{key: {{ .Values.provenance.key | quote }}, path: key}]
{{- end }}
{{- end }}

{{/* Why several routers need it. */}}
{{- define "dlx-router.provenance.why" -}}
replicas must sign records with the same key, for example kubectl create secret generic dlx-router-provenance --from-literal=provenance-key=$(openssl rand -hex 32). Letters that wait were signed by the key of before and would go to quarantine: see chart README, The shared key
{{- end }}

{{/* What router and pipeline may reach: DNS, the broker, and what is named besides. */}}
{{- define "dlx-router.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    {{- range .Values.networkPolicy.brokerPorts }}
    - {port: {{ int64 . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.egressTo }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
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
