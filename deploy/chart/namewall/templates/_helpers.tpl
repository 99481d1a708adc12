{{- define "namewall.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "namewall.labels" -}}
app.kubernetes.io/name: namewall
app.kubernetes.io/component: {{ . }}
{{- end }}
