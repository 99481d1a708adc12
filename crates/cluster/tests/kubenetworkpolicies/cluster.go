package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
	npav1alpha1 "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha1"
	npav1alpha2 "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha2"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	npainformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"
)

// build makes an engine whose informers hold the objects. They are never
// started: what they would list is put into their indexers.
func build(objects []json.RawMessage) (*networkpolicy.PolicyEngine, error) {
	core := informers.NewSharedInformerFactory(nil, 0)
	policy := npainformers.NewSharedInformerFactory(nil, 0)
	pods, namespaces, nodes := core.Core().V1().Pods(), core.Core().V1().Namespaces(), core.Core().V1().Nodes()
	networkPolicies := core.Networking().V1().NetworkPolicies()
	admin, baseline := policy.Policy().V1alpha1().AdminNetworkPolicies(), policy.Policy().V1alpha1().BaselineAdminNetworkPolicies()
	cluster := policy.Policy().V1alpha2().ClusterNetworkPolicies()
	resolver, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}

	for at, text := range objects {
		var kind struct{ Kind string }
		if err := json.Unmarshal(text, &kind); err != nil {
			return nil, fmt.Errorf("object %d: %w", at, err)
		}
		var err error
		switch kind.Kind {
		case "Pod":
			err = add(pods.Informer(), text, defaultPod)
		case "Namespace":
			err = add(namespaces.Informer(), text, defaultNamespace)
		case "Node":
			err = add(nodes.Informer(), text, func(*corev1.Node) {})
		case "NetworkPolicy":
			err = add(networkPolicies.Informer(), text, defaultNetworkPolicy)
		case "AdminNetworkPolicy":
			err = add(admin.Informer(), text, defaultAdmin)
		case "BaselineAdminNetworkPolicy":
			err = add(baseline.Informer(), text, defaultBaseline)
		case "ClusterNetworkPolicy":
			err = add(cluster.Informer(), text, func(*v1alpha2.ClusterNetworkPolicy) {})
		default:
			err = fmt.Errorf("unknown kind %q", kind.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", at, err)
		}
	}

	// The order of the two programs that kube-network-policies ships, one for each version of the admin API.
	// A cluster has policies of one version only.
	provider := podinfo.NewInformerProvider(pods, namespaces, nodes, []podinfo.IPResolver{resolver})
	return networkpolicy.NewPolicyEngine(provider, []api.PolicyEvaluator{
		npav1alpha1.NewAdminNetworkPolicy(admin, nil),
		npav1alpha2.NewClusterNetworkPolicy(v1alpha2.AdminTier, cluster, nil, nodes.Lister()),
		networkpolicy.NewStandardNetworkPolicy("", namespaces, pods, networkPolicies),
		npav1alpha1.NewBaselineAdminNetworkPolicy(baseline),
		npav1alpha2.NewClusterNetworkPolicy(v1alpha2.BaselineTier, cluster, nil, nodes.Lister()),
	}), nil
}

// add decodes an object strictly, gives it the API server's defaults, and adds it.
// The second decoding drops empty lists, as the API server does.
func add[T any](informer cache.SharedIndexInformer, text []byte, setDefaults func(*T)) error {
	first, object := new(T), new(T)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(first); err != nil {
		return err
	}
	stored, err := json.Marshal(first)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(stored, object); err != nil {
		return err
	}
	setDefaults(object)
	return informer.GetIndexer().Add(object)
}

func defaultPod(pod *corev1.Pod) {
	for _, container := range pod.Spec.Containers {
		for at := range container.Ports {
			if container.Ports[at].Protocol == "" {
				container.Ports[at].Protocol = corev1.ProtocolTCP
			}
		}
	}
}

func defaultNamespace(namespace *corev1.Namespace) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

func defaultNetworkPolicy(policy *networkingv1.NetworkPolicy) {
	for _, rule := range policy.Spec.Ingress {
		defaultPorts(rule.Ports)
	}
	for _, rule := range policy.Spec.Egress {
		defaultPorts(rule.Ports)
	}
	if len(policy.Spec.PolicyTypes) == 0 {
		policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(policy.Spec.Egress) > 0 {
			policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPorts(ports []networkingv1.NetworkPolicyPort) {
	for at := range ports {
		if ports[at].Protocol == nil {
			protocol := corev1.ProtocolTCP
			ports[at].Protocol = &protocol
		}
	}
}

func defaultAdmin(policy *v1alpha1.AdminNetworkPolicy) {
	for _, rule := range policy.Spec.Ingress {
		defaultAdminPorts(rule.Ports)
	}
	for _, rule := range policy.Spec.Egress {
		defaultAdminPorts(rule.Ports)
	}
}

func defaultBaseline(policy *v1alpha1.BaselineAdminNetworkPolicy) {
	for _, rule := range policy.Spec.Ingress {
		defaultAdminPorts(rule.Ports)
	}
	for _, rule := range policy.Spec.Egress {
		defaultAdminPorts(rule.Ports)
	}
}

func defaultAdminPorts(ports *[]v1alpha1.AdminNetworkPolicyPort) {
	if ports == nil {
		return
	}
	for _, port := range *ports {
		if port.PortNumber != nil && port.PortNumber.Protocol == "" {
			port.PortNumber.Protocol = corev1.ProtocolTCP
		}
		if port.PortRange != nil && port.PortRange.Protocol == "" {
			port.PortRange.Protocol = corev1.ProtocolTCP
		}
	}
}
