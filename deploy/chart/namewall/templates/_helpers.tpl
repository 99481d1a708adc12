{{- define "namewall.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "namewall.labels" -}}
app.kubernetes.io/name: namewall
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Annotations by which Prometheus finds a pod, at a port. */}}
{{- define "namewall.scrape" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ . | quote }}
prometheus.io/path: /metrics
{{- end }}

{{/* How the agent is probed: over HTTP, or through its socket if it serves no HTTP. The port is not declared: on the
     node's network that would make it a hostPort, which needs a right of its own. */}}
{{- define "namewall.agent.probe" -}}
{{- $port := index . 0 -}}
{{- if $port -}}
httpGet:
  path: {{ index . 1 }}
  port: {{ $port }}
{{- else -}}
exec:
  command: [/namewall, status]
{{- end -}}
{{- end }}
