//! The rows of `matrix` and `diff`: workloads, not pods; and names beside them.

use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// A folder of its own, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-rows-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("it is writable");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("it is writable");
        path.to_str().expect("it is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn namewall(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_namewall")).args(arguments).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).expect("it prints text");
    (output.status.code().unwrap_or_else(|| panic!("{errors}")), text)
}

/// Five nodes, with their addresses.
fn nodes() -> String {
    let node = |at: usize| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{at}}}\nspec: {{podCIDR: 10.{at}.0.0/16}}\nstatus: {{addresses: [{{type: InternalIP, address: 192.0.2.{at}}}]}}\n"
        )
    };
    (0..5).map(node).collect()
}

struct Pod<'a> {
    name: String,
    labels: String,
    owner: Option<(&'a str, String)>,
    number: usize,
}

fn pod(pod: &Pod<'_>) -> String {
    let Pod { name, labels, owner, number } = pod;
    let owner = owner.as_ref().map_or_else(String::new, |(kind, name)| {
        format!(", ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {name}, controller: true}}]")
    });
    let (node, high, low) = (number % 5, number / 250, number % 250 + 1);
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{{labels}}}{owner}}}\n\
         spec: {{nodeName: n{node}, containers: [{{name: c}}]}}\nstatus: {{phase: Running, podIP: 10.{node}.{high}.{low}}}\n"
    )
}

/// Sixty applications of five pods on five nodes; `hash` is that of their ReplicaSets.
fn sixty_apps(hash: &str, is_owned: bool) -> String {
    let mut text = nodes();
    for number in 0..300 {
        let app = number % 60;
        let name = format!("app{app}-{hash}-{number:05}");
        let labels = format!("app: app{app}, pod-template-hash: {hash}");
        let owner = is_owned.then(|| ("ReplicaSet", format!("app{app}-{hash}")));
        text += &pod(&Pod { name, labels, owner, number });
    }
    text
}

const ISOLATED: &str = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\n\
    spec: {podSelector: {matchLabels: {app: app7}}, ingress: [{from: [{podSelector: {matchLabels: {app: app8}}}], ports: [{port: 80}]}]}\n";

#[test]
fn pods_of_a_workload_share_a_row_across_nodes() {
    let folder = Folder::new("share");
    for (name, is_owned, row) in [("owned", true, "shop/app7 Deployment, 5 pods"), ("plain", false, "Pod, 5 pods")] {
        let path = folder.file(&format!("{name}.yaml"), &(sixty_apps("h1", is_owned) + ISOLATED));
        let (code, text) = namewall(&["matrix", &path]);
        assert_eq!(code, 0);
        assert_eq!(text.lines().filter(|line| line.ends_with(", 5 pods")).count(), 60, "{name}: {text}");
        assert!(text.contains(row), "{name}: {text}");
        let (_, csv) = namewall(&["matrix", "-o", "csv", &path]);
        let froms: std::collections::BTreeSet<&str> = csv
            .lines()
            .skip(1)
            .filter(|line| !line.contains("Outside"))
            .filter_map(|line| line.split(',').next())
            .collect();
        assert_eq!(froms.len(), 60, "{name}");
        let (_, svg) = namewall(&["matrix", "-o", "svg", &path]);
        assert!(svg.contains(": 60 workloads"), "{name}");
    }
}

#[test]
fn pods_of_a_workload_may_reach_each_other_or_not() {
    let folder = Folder::new("self");
    let path = folder.file("a.yaml", &(sixty_apps("h1", true) + ISOLATED));
    let (_, json) = namewall(&["matrix", "-o", "json", "--by", "workload", &path]);
    let list: Vec<Value> = serde_json::from_str(&json).expect("it is JSON");
    let find = |from: &str, to: &str| list.iter().find(|row| row["from"] == from && row["to"] == to);
    assert!(find("shop/app7", "shop/app7").is_none(), "two pods of app7 may not");
    assert_eq!(find("shop/app8", "shop/app8").expect("two pods of app8 may")["allowed"]["TCP"][0], "1-65535");
    let open = find("shop/app8", "shop/app7").expect("it is open");
    assert_eq!(open["allowed"]["TCP"], serde_json::json!(["80"]));
    assert_eq!(open["kind"], serde_json::json!({"from": "Deployment", "to": "Deployment"}));
    assert_eq!(open["pods"], serde_json::json!({"from": 5, "to": 5}));
    // Without --by the list has pods, as it always had, and says whose they are.
    let (_, json) = namewall(&["matrix", "-o", "json", "--focus", "shop/app7-h1-00007", &path]);
    let list: Vec<Value> = serde_json::from_str(&json).expect("it is JSON");
    let own = list.iter().find(|row| row["from"] == row["to"]).expect("a pod reaches itself");
    assert_eq!(own["workload"], serde_json::json!({"from": "shop/app7", "to": "shop/app7"}));
}

#[test]
fn a_row_is_split_only_where_its_pods_differ() {
    let folder = Folder::new("split");
    let mut text = nodes();
    for number in 0..3 {
        let labels = format!("app: db, statefulset.kubernetes.io/pod-name: db-{number}");
        text += &pod(&Pod { name: format!("db-{number}"), labels, owner: Some(("StatefulSet", "db".into())), number });
    }
    let same = folder.file("same.yaml", &text);
    let policy = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: shop}\n\
        spec: {podSelector: {matchLabels: {statefulset.kubernetes.io/pod-name: db-0}}, ingress: [{ports: [{port: 5432}]}]}\n";
    let split = folder.file("split.yaml", &(text + policy));
    let (_, printed) = namewall(&["matrix", &same]);
    assert!(printed.starts_with("shop/db StatefulSet, 3 pods\n"), "{printed}");
    let (_, printed) = namewall(&["matrix", &split]);
    assert!(printed.contains("shop/db (db-0) StatefulSet\n"), "{printed}");
    assert!(printed.contains("shop/db (db-1 +1) StatefulSet, 2 pods\n"), "{printed}");
    let (code, printed) = namewall(&["diff", &same, &split]);
    assert_eq!(code, 1);
    assert!(printed.contains("~ shop/db (db-1 +1) -> shop/db (db-0): TCP 5432  (was everything)\n"), "{printed}");
    assert!(!printed.contains("-> shop/db (db-1 +1):"), "{printed}");
}

#[test]
fn diff_compares_workloads_whatever_their_pods_are_called() {
    let folder = Folder::new("rollout");
    let before = folder.file("before.yaml", &sixty_apps("h1", true));
    let rolled = folder.file("rolled.yaml", &sixty_apps("h2", true));
    let closed = folder.file("closed.yaml", &(sixty_apps("h2", true) + ISOLATED));
    assert_eq!(namewall(&["diff", &before, &rolled]).0, 0, "a rollout is no difference");
    assert_eq!(namewall(&["diff", "--by", "pod", &before, &rolled]).0, 1);
    let (code, printed) = namewall(&["diff", &before, &closed]);
    assert_eq!(code, 1);
    let is_row = |line: &&str| line[2..].starts_with("shop/") && line.contains(" -> shop/app7: ");
    assert_eq!(printed.lines().filter(is_row).count(), 60, "{printed}");
    assert!(printed.contains("~ shop/app8 -> shop/app7: TCP 80  (was everything)\n"), "{printed}");
    // A template is compared with the pods that it has become.
    let template = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app7, namespace: shop}\n\
        spec: {template: {metadata: {labels: {app: app7}}, spec: {containers: [{name: c}]}}}\n";
    let template = folder.file("template.yaml", &format!("{}{template}", nodes() + "---\n"));
    let mut one = nodes();
    let owner = Some(("ReplicaSet", "app7-h1".into()));
    one += &pod(&Pod { name: "app7-h1-x".into(), labels: "app: app7, pod-template-hash: h1".into(), owner, number: 7 });
    let (code, printed) = namewall(&["diff", &template, &folder.file("one.yaml", &one)]);
    assert_eq!((code, printed.as_str()), (0, "The same connections are open before and after.\n"));
}

#[test]
fn names_are_destinations_in_every_format() {
    let folder = Folder::new("names");
    let mut text = nodes();
    for (number, name) in ["web", "api"].into_iter().enumerate() {
        text += &pod(&Pod { name: name.into(), labels: format!("app: {name}"), owner: None, number });
    }
    write!(
        text,
        "---\napiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {{name: f}}\nspec: {{priority: 1, rules: [\
         {{action: Allow, to: [{{domainNames: [api.example.com, \"*.cdn.example\"]}}]}}, {{action: Deny, to: [{{networks: [0.0.0.0/0]}}]}}]}}\n"
    )
    .expect("a string takes all");
    let path = folder.file("a.yaml", &text);
    let names = ["api.example.com", "*.cdn.example (any subdomain)"];
    for format in ["text", "json", "csv", "md", "html", "svg", "dot"] {
        let (code, printed) = namewall(&["matrix", "-o", format, &path]);
        assert_eq!(code, 0, "{format}");
        for name in names {
            assert!(printed.contains(name), "{format} has no {name}: {printed}");
        }
    }
    let (_, json) = namewall(&["matrix", "-o", "json", &path]);
    let list: Vec<Value> = serde_json::from_str(&json).expect("it is JSON");
    let entry = list.iter().find(|row| row["from"] == "shop/web" && row["to"] == names[1]).expect("it is open");
    assert_eq!(entry["name"], serde_json::json!({"pattern": "*.cdn.example", "matches": "subdomains"}));
    assert_eq!(entry["kind"], serde_json::json!({"from": "Pod"}));
    let without = folder.file("b.yaml", &text.replace(", \"*.cdn.example\"", ""));
    let (_, printed) = namewall(&["diff", &path, &without]);
    assert!(printed.contains("- shop/web -> *.cdn.example (any subdomain): everything\n"), "{printed}");
    let (_, json) = namewall(&["diff", "-o", "json", &path, &without]);
    let list: Vec<Value> = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(list[0]["name"]["pattern"], "*.cdn.example");
    assert_eq!(list[0]["kind"], serde_json::json!({"from": "Pod", "to": "Name"}));
}

/// A name that no rule speaks of is as open as its address.
#[test]
fn a_rule_by_name_adds_only_what_was_closed_before() {
    let folder = Folder::new("named");
    let mut pods = nodes();
    for (number, name) in ["web", "api"].into_iter().enumerate() {
        pods += &pod(&Pod { name: name.into(), labels: format!("app: {name}"), owner: None, number });
    }
    let firewall = |rules: &str| {
        let object = "apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {name: f}";
        format!(
            "{pods}---\n{object}\nspec: {{priority: 1, subject: {{pods: {{namespaceSelector: {{}}, podSelector: \
             {{matchLabels: {{app: web}}}}}}}}, rules: [{rules}]}}\n"
        )
    };
    let (open, closed) = (folder.file("open.yaml", &pods), "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}");
    let by_name = "{action: Allow, to: [{domainNames: ['*.example.com']}], ports: [{protocol: TCP, port: 443}]}";
    let named = folder.file("named.yaml", &firewall(&format!("{by_name}, {closed}")));
    let closed = folder.file("closed.yaml", &firewall(closed));
    let line = |old: &str, new: &str| {
        let (_, printed) = namewall(&["diff", old, new]);
        let found: Vec<String> =
            printed.lines().filter(|line| line.contains("example.com")).map(str::to_owned).collect();
        found.join("\n")
    };
    assert_eq!(line(&open, &named), "~ shop/web -> *.example.com (any subdomain): TCP 443  (was everything)");
    assert_eq!(line(&named, &open), "~ shop/web -> *.example.com (any subdomain): everything  (was TCP 443)");
    assert_eq!(line(&closed, &named), "+ shop/web -> *.example.com (any subdomain): TCP 443");
    // A rule that allows what is open anyway changes nothing.
    let idle = folder.file("idle.yaml", &firewall(by_name));
    assert_eq!(namewall(&["diff", &open, &idle]), (0, "The same connections are open before and after.\n".to_owned()));
}

/// Deployments without addresses, each with a policy of its own, and a denied network that their pods may or may not
/// get addresses in.
fn deployments(count: usize) -> String {
    let mut text = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: out}\nspec:\n  priority: 1\n  \
         subject: {namespaces: {}}\n  egress: [{name: no-dns, action: Deny, to: [{networks: [8.8.8.8/32]}]}]\n"
        .to_owned();
    for at in 0..count {
        write!(
            text,
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: app{at:03}, namespace: shop}}\n\
             spec: {{template: {{metadata: {{labels: {{app: app{at:03}}}}}, spec: {{containers: []}}}}}}\n\
             ---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p{at}, namespace: shop}}\n\
             spec: {{podSelector: {{matchLabels: {{app: app{at:03}}}}}, ingress: [{{ports: [{{port: 443}}]}}]}}\n"
        )
        .expect("a string takes all");
    }
    text
}

/// What a page shows, as it carries it.
fn page_data(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").expect("it has data");
    let (data, _) = data.split_once("</script>").expect("it ends");
    serde_json::from_str(data).expect("it is JSON")
}

/// Were the name of a workload part of its cell, 5,000 of them would be 25 million different cells.
#[test]
fn cells_that_depend_on_the_same_thing_are_one_cell() {
    let folder = Folder::new("conditions");
    let sizes = [20, 120].map(|count| {
        let path = folder.file("a.yaml", &deployments(count));
        let (code, page) = namewall(&["matrix", "-o", "html", &path]);
        assert_eq!(code, 0);
        let data = page_data(&page);
        let cells = data["cells"].as_array().expect("it has cells");
        let text = "depends: TCP 443 (closed only if pods of the target live in 8.8.8.8/32)";
        assert!(cells.iter().any(|cell| cell[1] == text), "{cells:?}");
        assert_eq!(data["rows"].as_array().map(Vec::len), Some(count));
        (cells.len(), data["lines"].as_array().map(Vec::len))
    });
    assert_eq!(sizes[0], sizes[1], "more workloads of the same kind need no more cells or lines");
}

/// Each workload accepts one port from everybody: one edge each, whatever the number of workloads.
#[test]
fn a_graph_has_one_edge_for_what_every_workload_may_open() {
    let folder = Folder::new("edges");
    let path = folder.file("a.yaml", &deployments(40));
    let (code, dot) = namewall(&["matrix", "-o", "dot", &path]);
    assert_eq!(code, 0);
    assert!(dot.contains("every workload"), "{dot}");
    let edges = dot.lines().filter(|line| line.contains(" -> ")).count();
    assert!(edges <= 100, "{edges} edges: {dot}");
}

/// Graphviz cannot draw an edge from a cluster to one of its own nodes.
#[test]
fn an_edge_within_a_namespace_begins_at_a_node_for_all_of_it() {
    let folder = Folder::new("inner");
    let text: String = ["web", "api", "db"]
        .map(|name| {
            let ingress = if name == "web" { "[{ports: [{port: 443}]}]" } else { "[]" };
            format!(
                "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: []}}}}}}\n\
                 ---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{podSelector: {{matchLabels: {{app: {name}}}}}, policyTypes: [Ingress], ingress: {ingress}}}\n"
            )
        })
        .concat();
    let (code, dot) = namewall(&["matrix", "-o", "dot", &folder.file("a.yaml", &text)]);
    assert_eq!(code, 0);
    assert!(dot.contains("all0 [label=\"all of shop\""), "{dot}");
    assert!(dot.contains("all0 -> n2 [label=\"TCP 443\""), "{dot}");
}
