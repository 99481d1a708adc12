{{- define "namewall.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "namewall.labels" -}}
app.kubernetes.io/name: namewall
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- /* What policies can see, and nothing of it more than to be read. */ -}}
{{- define "namewall.watched" -}}
- apiGroups: [""]
  resources: [namespaces, nodes, pods, services]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch]
- apiGroups: [policy.networking.k8s.io]
  resources: [adminnetworkpolicies, baselineadminnetworkpolicies, clusternetworkpolicies]
  verbs: [get, list, watch]
- apiGroups: [k8s.ovn.org]
  resources: [egressfirewalls]
  verbs: [get, list, watch]
- apiGroups: [namewall.dev]
  resources: [clusteregressfirewalls, nodeaddresses]
  verbs: [get, list, watch]
- apiGroups: [network.openshift.io]
  resources: [dnsnameresolvers]
  verbs: [get, list, watch]
{{- end }}
