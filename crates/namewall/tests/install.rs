//! What `deploy/` has is what the binary needs: the plain manifest is the chart, a real API server takes all of it, and
//! each component works with its own rights and with no more. `kinds` checks that the chart's definitions and roles
//! are those of the table of kinds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use expect_test::expect_file;
use namewall_cluster::kinds::{self, Component, ObjectPart, Within, WriteAccess};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_kubernetes::{Connection, Enforces, NodeTopic, Outcome, Target, Watch};
use namewall_testbed::ControlPlane;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const HEADER: &str = "\
# All that namewall needs in a cluster: kubectl apply --server-side -f deploy/namewall.yaml
#
# This is the chart in deploy/chart/namewall as it is, and is not edited: change the chart, then
#   UPDATE_EXPECT=1 cargo test -p namewall --features system --test install -- as_it_is
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The chart, rendered by Helm itself with these settings.
fn render(settings: &[&str]) -> String {
    let chart = root().join("deploy/chart/namewall");
    let folder = std::env::temp_dir().join(format!("namewall-helm-{}", std::process::id()));
    let rendered = Command::new(namewall_testbed::peer("helm"))
        // What a hook does is Helm's to start: kubectl would run it at once.
        .args(["template", "namewall", "--include-crds", "--no-hooks"])
        .arg(chart)
        .args(settings)
        // Nothing of whoever runs this counts.
        .env_remove("KUBECONFIG")
        .env("HELM_CONFIG_HOME", &folder)
        .env("HELM_CACHE_HOME", &folder)
        .env("HELM_DATA_HOME", &folder)
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    String::from_utf8(rendered.stdout).unwrap()
}

#[test]
fn the_plain_manifest_is_the_chart_as_it_is() {
    expect_file!["../../../deploy/namewall.yaml"].assert_eq(&format!("{HEADER}{}", render(&[])));
}

/// kubelet starts no pod with a `hostPath` volume that fails its type: every folder of the node is made where there is
/// none, and a node without a container runtime at that path still starts the agent.
#[test]
fn a_runtime_socket_that_is_not_there_keeps_no_agent_from_starting() {
    let host_paths = |rendered: &str| -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut lines = rendered.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line == "hostPath:" {
                let mut value = |key: &str| lines.next().and_then(|line| line.strip_prefix(key)).map(str::to_owned);
                found.push((value("path: ").expect("a path"), value("type: ").expect("a type")));
            }
        }
        found
    };
    let usual = host_paths(&render(&[]));
    assert!(
        usual.iter().any(|(path, _)| path == "/run/containerd"),
        "the folder of the socket, not the socket: {usual:?}"
    );
    assert!(usual.iter().all(|(_, kind)| kind == "DirectoryOrCreate"), "{usual:?}");
    let without = render(&["--set", "cni.runtimeSocket="]);
    assert!(
        without.contains("- --watch") && !without.contains("--runtime-socket") && !without.contains("/host/runtime")
    );
    assert!(host_paths(&without).iter().all(|(path, _)| path != "/run/containerd"), "nobody asks a runtime");
}

/// One control plane for all: it takes a while to start.
#[test]
fn a_cluster_takes_it_and_each_component_has_the_rights_it_needs_and_no_more() {
    let plane = ControlPlane::start().unwrap();
    is_taken_without_a_warning(&plane);
    with_everything_set_it_is_taken_too(&plane);
    the_controller_is_restricted_and_the_agent_is_not_privileged(&plane);
    rights_are_these(&plane);
    kinds_are_watched_and_written_as_the_table_says(&plane);
    the_controller_does_its_work_with_its_own_token(&plane);
    the_agent_does_its_work_with_its_own_token(&plane);
}

fn is_taken_without_a_warning(plane: &ControlPlane) {
    let manifest = root().join("deploy/namewall.yaml");
    let apply = ["apply", "--server-side", "--warnings-as-errors", "-f", manifest.to_str().unwrap()];
    plane.kubectl(&apply).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    // And again, as for an update.
    plane.kubectl(&apply).unwrap();
}

fn with_everything_set_it_is_taken_too(plane: &ControlPlane) {
    let settings = [
        "image.tag=other",
        "imagePullSecrets[0].name=pull",
        "podNetworks={10.244.0.0/16,fd00::/48}",
        "agent.upstreams={10.96.0.10,[2001:db8::1]:53}",
        "agent.trust={9.9.9.9}",
        "agent.metricsPort=0",
        "agent.maximumTtl=30m",
        "agent.neverLease={192.0.2.0/24}",
        "agent.nat64Prefixes={2001:db8:64::/96}",
        "agent.extraArgs={--grace=10s}",
        "cni.whenAgentAway=allow",
        "cni.binDir=/usr/lib/cni",
        "controller.resolvers={10.96.0.10}",
        "controller.allNames=true",
        "controller.extraArgs={--context=other}",
        "controller.tolerations[0].operator=Exists",
        "namespace.create=false",
    ];
    let rendered = render(&settings.map(|setting| ["--set", setting]).concat());
    assert!(!rendered.contains("kind: Namespace\n"), "it is there already");
    for text in [
        "--pod-network=fd00::/48",
        "--upstream=[2001:db8::1]:53",
        "--trust=9.9.9.9",
        "--maximum-ttl=30m",
        "--never-lease=192.0.2.0/24",
        "--nat64-prefix=2001:db8:64::/96",
        "--all-names",
        "--when-agent-away=allow",
    ] {
        assert!(rendered.contains(text), "{text} is missing");
    }
    assert!(
        !rendered.contains("--metrics-address") && rendered.contains("[/namewall, status]"),
        "no HTTP, other probes"
    );
    let without = render(&["--set", "cni.enabled=false"]);
    assert!(!without.contains("initContainers") && !without.contains("cni-conf"), "no plugin, and no folder of it");
    let apply = ["apply", "--server-side", "--force-conflicts", "--warnings-as-errors", "--dry-run=server", "-f", "-"];
    plane.kubectl_with(&apply, &rendered).unwrap();
}

/// What a workload makes its pods of, as a pod of a namespace.
fn pod_of(plane: &ControlPlane, workload: &str, namespace: &str) -> String {
    let template = plane.get(&[workload, "-n", "namewall"]).unwrap()["spec"]["template"].clone();
    let metadata = json!({"name": "one", "namespace": namespace, "labels": template["metadata"]["labels"]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}).to_string()
}

fn the_controller_is_restricted_and_the_agent_is_not_privileged(plane: &ControlPlane) {
    for level in ["baseline", "restricted"] {
        plane.kubectl(&["create", "namespace", level]).unwrap();
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        plane.kubectl(&["label", "namespace", level, &label]).unwrap();
    }
    let create = ["create", "--dry-run=server", "-f", "-"];
    let takes = |workload: &str, namespace: &str| plane.kubectl_with(&create, &pod_of(plane, workload, namespace));
    takes("deployment/namewall-controller", "restricted").unwrap();
    takes("daemonset/namewall-agent", "namewall").unwrap();
    let refusal = takes("daemonset/namewall-agent", "baseline").unwrap_err().to_string();
    // Nothing else is asked for beyond what any pod may have.
    let why = refusal.split("\"baseline:latest\": ").nth(1).unwrap_or_default().trim();
    let needs = "host namespaces (hostNetwork=true), hostPath volumes (volumes \"run\", \"state\", \"cni-bin\", \
                 \"cni-conf\", \"runtime\", \"netns\"), non-default capabilities (containers \"cni\", \"agent\" must not \
                 include \"NET_ADMIN\", \"SYS_ADMIN\" in securityContext.capabilities.add)";
    let sorted = |text: &str| {
        let mut parts: Vec<String> = text.split("), ").map(|part| part.trim_end_matches(')').to_owned()).collect();
        parts.sort();
        parts
    };
    assert_eq!(sorted(why), sorted(needs), "{refusal}");
    // Who may talk to the container runtime is as good as root.
    let agent = pod_of(plane, "daemonset/namewall-agent", "namewall");
    let agent: Value = serde_json::from_str(&agent).unwrap();
    let mounts = agent["spec"]["containers"][0]["volumeMounts"].to_string();
    assert!(mounts.contains("/run/namewall") && !mounts.contains("runtime") && !mounts.contains("netns"), "{mounts}");
}

/// One question about rights: `yes agent list pods`, with the resource as `PLURAL[.GROUP][/SUBRESOURCE][=NAME]` and,
/// in the end, a namespace where it is not all of them.
fn review(line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (component, verb, resource) = (words[1], words[2], words[3]);
    let (resource, name) = resource.split_once('=').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let namespace = words.get(4).copied().unwrap_or_default();
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:namewall:namewall-{component}"),
            "groups": ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:namewall"],
            "resourceAttributes": {
                "verb": verb, "resource": resource, "group": group, "subresource": subresource,
                "name": name, "namespace": namespace,
            },
        },
    })
}

/// Asks the API server all of it, and fails with everything that is not as it says.
fn check_rights(plane: &ControlPlane, lines: &[String]) {
    let asked: Vec<String> = lines.iter().map(|line| review(line).to_string()).collect();
    let told = plane.kubectl_with(&["create", "-o", "json", "-f", "-"], &asked.join("\n---\n")).unwrap();
    let told: Vec<Value> = serde_json::Deserializer::from_str(&told).into_iter().map(Result::unwrap).collect();
    let told: Vec<Value> =
        told.into_iter().flat_map(|one| one["items"].as_array().cloned().unwrap_or(vec![one])).collect();
    assert_eq!(told.len(), lines.len());
    let is_wrong = |(line, told): &(&String, &Value)| {
        (told["status"]["allowed"] == true) != (line.split_whitespace().next() == Some("yes"))
    };
    let wrong: Vec<&str> = lines.iter().zip(&told).filter(is_wrong).map(|(line, _)| line.as_str()).collect();
    assert!(wrong.is_empty(), "these are not so:\n{}", wrong.join("\n"));
}

fn rights_are_these(plane: &ControlPlane) {
    let lines = "
        yes agent      update dnsnameresolvers.network.openshift.io/status
        yes agent      create nodeaddresses.namewall.dev
        yes agent      patch  nodeaddresses.namewall.dev
        yes agent      patch  nodeaddresses.namewall.dev/status
        no  agent      create dnsnameresolvers.network.openshift.io
        no  agent      delete nodeaddresses.namewall.dev
        no  agent      get    leases.coordination.k8s.io=namewall-controller namewall
        no  agent      create leases.coordination.k8s.io namewall
        no  agent      patch  clusteregressfirewalls.namewall.dev/status
        yes agent      create events default
        no  agent      create events
        no  agent      create events namewall
        no  agent      patch  events default

        yes controller update dnsnameresolvers.network.openshift.io/status
        yes controller create dnsnameresolvers.network.openshift.io namewall
        yes controller delete dnsnameresolvers.network.openshift.io namewall
        yes controller create leases.coordination.k8s.io namewall
        yes controller get    leases.coordination.k8s.io=namewall-controller namewall
        yes controller update leases.coordination.k8s.io=namewall-controller namewall
        yes controller patch  clusteregressfirewalls.namewall.dev/status
        yes controller patch  egressfirewalls.k8s.ovn.org/status
        yes controller patch  adminnetworkpolicies.policy.networking.k8s.io/status
        yes controller patch  baselineadminnetworkpolicies.policy.networking.k8s.io/status
        yes controller patch  clusternetworkpolicies.policy.networking.k8s.io/status
        yes controller create events
        no  controller create dnsnameresolvers.network.openshift.io default
        no  controller delete dnsnameresolvers.network.openshift.io default
        no  controller create leases.coordination.k8s.io kube-system
        no  controller get    leases.coordination.k8s.io=other namewall
        no  controller update leases.coordination.k8s.io=kube-scheduler kube-system
        no  controller delete leases.coordination.k8s.io=namewall-controller namewall
        no  controller create nodeaddresses.namewall.dev
        no  controller delete events
    ";
    let both = "
        get secrets, list secrets, get secrets namewall, get configmaps, create pods, create pods/exec, get pods/log,
        create pods/eviction, patch pods/status, patch nodes, patch nodes/status, get nodes/proxy,
        create serviceaccounts/token namewall, impersonate users, escalate clusterroles.rbac.authorization.k8s.io,
        bind clusterroles.rbac.authorization.k8s.io, update clusterrolebindings.rbac.authorization.k8s.io,
        update customresourcedefinitions.apiextensions.k8s.io, patch daemonsets.apps namewall,
        patch namespaces=namewall, create mutatingwebhookconfigurations.admissionregistration.k8s.io,
        delete dnsnameresolvers.network.openshift.io, patch networkpolicies.networking.k8s.io/status
    ";
    let own = lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned);
    let refused = both
        .split(',')
        .flat_map(|what| ["agent", "controller"].map(|component| format!("no {component} {}", what.trim())));
    check_rights(plane, &own.chain(refused).collect::<Vec<String>>());
}

/// What the table of kinds says, and no more.
fn kinds_are_watched_and_written_as_the_table_says(plane: &ControlPlane) {
    let mut lines = Vec::new();
    for (component, name) in [(Component::Agent, "agent"), (Component::Controller, "controller")] {
        for kind in kinds::watched(component) {
            let resource = format!("{}.{}", kind.plural, kind.group);
            lines.extend(["get", "list", "watch"].map(|verb| format!("yes {name} {verb} {resource}")));
            for (part, resource) in
                [(ObjectPart::Object, resource.clone()), (ObjectPart::Status, format!("{resource}/status"))]
            {
                let is_so =
                    |write: &&WriteAccess| (write.by, write.part, write.within) == (component, part, Within::Cluster);
                let writes: Vec<&str> =
                    kind.write_access().filter(is_so).flat_map(|write| write.verbs).copied().collect();
                for verb in ["create", "update", "patch", "delete", "deletecollection"] {
                    let answer = if writes.contains(&verb) { "yes" } else { "no" };
                    lines.push(format!("{answer} {name} {verb} {resource}"));
                }
            }
        }
    }
    check_rights(plane, &lines);
}

/// A kubeconfig for a component, with a token of its own account.
fn kubeconfig_of(plane: &ControlPlane, component: &str) -> PathBuf {
    let token = plane.kubectl(&["create", "token", &format!("namewall-{component}"), "-n", "namewall"]).unwrap();
    plane.kubeconfig_for(component, token.trim()).unwrap()
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TEST_TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A DNS server that has one address for every name.
fn resolver() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            // The name ends with its root; type and class follow.
            let end = 12 + packet[12..length].iter().position(|byte| *byte == 0).unwrap() + 5;
            let is_v4 = packet[end - 4..end - 2] == [0, 1];
            let counts = [0, 1, 0, u8::from(is_v4), 0, 0, 0, 0];
            let mut answer = [&packet[..2], &[0x81, 0x80], &counts, &packet[12..end]].concat();
            if is_v4 {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    at
}

const FIREWALL: &str = "apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {name: default, namespace: default}
spec: {egress: [{type: Allow, to: {dnsName: www.example.com}}, {type: Deny, to: {cidrSelector: 0.0.0.0/0}}]}
---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {name: outside}
spec: {priority: 5, rules: [{name: r, action: Deny, to: [{networks: [192.0.2.0/24]}]}]}
";

fn the_controller_does_its_work_with_its_own_token(plane: &ControlPlane) {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let log = std::env::temp_dir().join(format!("namewall-install-{}.log", std::process::id()));
    let controller = Command::new(env!("CARGO_BIN_EXE_namewall"))
        .args(["controller", "--namespace", "namewall", "--identity", "one", "--kubeconfig"])
        .arg(kubeconfig_of(plane, "controller"))
        .args(["--resolver", &resolver().to_string(), "--health-port", &port.to_string()])
        .stderr(File::create(&log).unwrap())
        .spawn();
    let _controller = Process(controller.unwrap());
    wait_for("it is ready", || probe(port, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200 ")));
    assert!(probe(port, "/healthz").unwrap().ends_with("\r\n\r\nOK"));
    let holder = ["lease", "namewall-controller", "-n", "namewall"];
    wait_for("it leads", || plane.get(&holder).is_ok_and(|lease| lease["spec"]["holderIdentity"] == "one"));
    plane.apply(FIREWALL).unwrap();
    let names = || plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap()["items"].to_string();
    wait_for("a name is looked up", || names().contains("192.0.2.7"));
    let status = |kind: &str, name: &str| plane.get(&[kind, name]).unwrap()["status"].take();
    wait_for("it is said that it is read", || status("egressfirewall", "default")["status"] == "");
    wait_for("what became of it", || !status("clusteregressfirewall", "outside")["concreteRules"].is_null());
    plane.kubectl(&["annotate", "egressfirewall", "default", "namewall.dev/enforcement=perhaps"]).unwrap();
    let events = || plane.kubectl(&["events", "--for", "egressfirewall/default"]).unwrap_or_default();
    wait_for("an Event says what is wrong", || events().contains("use audit or enforce"));
    plane.kubectl(&["delete", "egressfirewall", "default"]).unwrap();
    wait_for("what nobody wants goes", || names() == "[]");
    let metrics = probe(port, "/metrics").unwrap();
    for sample in [
        "namewall_controller_leader 1",
        "namewall_controller_objects_total{operation=\"create\"} ",
        "namewall_watch_objects{kind=\"EgressFirewall\"} 0",
        "namewall_api_requests_total{code=\"2xx\"} ",
        "namewall_shared_lookups_total{result=\"written\"} ",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(sample)), "{sample} is missing:\n{metrics}");
    }
    let said = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(said.contains("leading") && !said.contains("cannot"), "{said}");
}

/// What a probe is answered.
fn probe(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

const NAME: &str = "apiVersion: network.openshift.io/v1alpha1
kind: DNSNameResolver
metadata: {name: dns-1, namespace: default}
spec: {name: api.example.com.}
";

fn the_agent_does_its_work_with_its_own_token(plane: &ControlPlane) {
    plane.apply(NAME).unwrap();
    let kubeconfig = kubeconfig_of(plane, "agent");
    let connection = Connection::open(&Target { kubeconfig: Some(kubeconfig.clone()), context: None }).unwrap();
    let watch = Watch::start(&connection, Component::Agent);
    watch.wait_until_known(TEST_TIMEOUT).unwrap();
    assert!(watch.trouble().is_empty() && watch.absent().is_empty(), "{:?} {:?}", watch.trouble(), watch.absent());
    let publisher = watch.publisher(ResolverSettings::default());
    let found = Outcome::Found(vec![("192.0.2.9".parse().unwrap(), 30)]);
    assert!(publisher.note("api.example.com.", &found), "the object is concerned");
    assert!(publisher.finish(TEST_TIMEOUT));
    assert_eq!((publisher.counts().written, publisher.counts().failed), (1, 0));
    assert!(plane.get(&["dnsnameresolver", "dns-1"]).unwrap().to_string().contains("192.0.2.9"));
    // The addresses of its node, and what it enforces.
    plane.apply("{apiVersion: v1, kind: Node, metadata: {name: one}}").unwrap();
    let environment = connection.environment();
    let addresses = ["192.0.2.1".parse().unwrap()];
    let enforces = Enforces { cluster_egress_firewalls: "digest".to_owned(), egress_firewalls: "other".to_owned() };
    connection.block_on(environment.publish_node("one", &addresses, &enforces)).unwrap();
    let told = plane.get(&["nodeaddresses", "one"]).unwrap();
    let said = (&told["addresses"][0], &told["status"]["enforces"], &told["status"]["enforcesEgressFirewalls"]);
    assert_eq!(said, (&json!("192.0.2.1"), &json!("digest"), &json!("other")));
    // What it could not put in force there.
    connection.block_on(environment.tell_of_node("one", NodeTopic::Enforcement, Some("the kernel is full"))).unwrap();
    let events = plane.kubectl(&["events", "--for", "node/one"]).unwrap();
    assert!(events.contains("NamewallNotEnforcing") && events.contains("the kernel is full"), "{events}");
    let tampered = Some("1 times since the agent started, last in pod shop/web");
    connection.block_on(environment.tell_of_node("one", NodeTopic::Tampering, tampered)).unwrap();
    let events = plane.kubectl(&["events", "--for", "node/one"]).unwrap();
    assert!(events.contains("NamewallTampered") && events.contains("shop/web"), "{events}");
    let of = format!("--kubeconfig={}", kubeconfig.display());
    let refusal = plane.kubectl(&[&of, "delete", "nodeaddresses", "one"]).unwrap_err().to_string();
    assert!(refusal.contains("Forbidden"), "{refusal}");
}
