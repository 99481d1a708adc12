{{- /* Made from the table of kinds (crates/cluster/src/kinds/mod.rs), and not edited. Change the table, then
       UPDATE_EXPECT=1 cargo test -p namewall --test kinds */ -}}

{{- define "namewall.agent.kinds" -}}
- apiGroups: [""]
  resources: [namespaces, nodes, pods, services]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
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
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch]
- apiGroups: [policy.networking.k8s.io]
  resources: [adminnetworkpolicies, baselineadminnetworkpolicies, clusternetworkpolicies]
  verbs: [get, list, watch]
# The addresses of its node.
- apiGroups: [namewall.dev]
  resources: [nodeaddresses]
  verbs: [create, patch]
# What its node enforces.
- apiGroups: [namewall.dev]
  resources: [nodeaddresses/status]
  verbs: [patch]
# What pods of its node have looked up, for the other nodes.
- apiGroups: [network.openshift.io]
  resources: [dnsnameresolvers/status]
  verbs: [update]
{{- end }}

{{- define "namewall.controller.kinds" -}}
- apiGroups: [""]
  resources: [namespaces, nodes, pods, services]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
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
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch]
- apiGroups: [policy.networking.k8s.io]
  resources: [adminnetworkpolicies, baselineadminnetworkpolicies, clusternetworkpolicies]
  verbs: [get, list, watch]
# What it has looked up, also in objects that somebody else created.
- apiGroups: [network.openshift.io]
  resources: [dnsnameresolvers/status]
  verbs: [update]
# Whether a policy is accepted, and what became of it.
- apiGroups: [k8s.ovn.org]
  resources: [egressfirewalls/status]
  verbs: [patch]
- apiGroups: [namewall.dev]
  resources: [clusteregressfirewalls/status]
  verbs: [patch]
- apiGroups: [policy.networking.k8s.io]
  resources: [adminnetworkpolicies/status, baselineadminnetworkpolicies/status, clusternetworkpolicies/status]
  verbs: [patch]
{{- end }}

{{- define "namewall.controller.ownKinds" -}}
# An object for every name that it keeps resolved.
- apiGroups: [network.openshift.io]
  resources: [dnsnameresolvers]
  verbs: [create, delete]
{{- end }}
