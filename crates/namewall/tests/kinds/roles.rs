//! The roles of the agent and the controller: the chart's part about kinds is made from the table, and the plain
//! manifest grants for each kind what its row says, and no more.

use super::files::{Made, read};
use namewall_cluster::Document;
use namewall_cluster::kinds::{self, Component, KINDS, ObjectPart, Within, WriteAccess};
use namewall_cluster::yaml::{Node, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const WATCH: [&str; 3] = ["get", "list", "watch"];

const HEADER: &str = "\
{{- /* Made from the table of kinds (crates/cluster/src/kinds/mod.rs), and not edited. Change the table, then
       UPDATE_EXPECT=1 cargo test -p namewall --test kinds */ -}}
";

#[test]
fn the_chart_grants_what_the_table_says() {
    let (agent, controller) = (Component::Agent, Component::Controller);
    let text = [
        HEADER.to_owned(),
        define("namewall.agent.kinds", &(watching(agent) + &writing(agent, Within::Cluster))),
        define("namewall.controller.kinds", &(watching(controller) + &writing(controller, Within::Cluster))),
        define("namewall.controller.ownKinds", &writing(controller, Within::OwnNamespace)),
    ];
    Made { path: "deploy/chart/namewall/templates/_kinds.tpl", text: text.concat() }.check();
}

fn define(name: &str, rules: &str) -> String {
    format!("\n{{{{- define \"{name}\" -}}}}\n{rules}{{{{- end }}}}\n")
}

fn rule(group: &str, resources: &BTreeSet<String>, verbs: &[&str]) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
    let (resources, verbs) = (resources.join(", "), verbs.join(", "));
    format!("- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: [{verbs}]\n")
}

fn watching(component: Component) -> String {
    let mut groups: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for kind in kinds::watched(component) {
        groups.entry(kind.group).or_default().insert(kind.plural.to_owned());
    }
    groups.iter().map(|(group, resources)| rule(group, resources, &WATCH)).collect()
}

/// A rule for each purpose and group, under a comment that says the purpose.
fn writing(component: Component, within: Within) -> String {
    let mut rules: BTreeMap<(&str, &str, &[&str]), BTreeSet<String>> = BTreeMap::new();
    for kind in KINDS {
        for access in kind.write_access().filter(|access| access.by == component && access.within == within) {
            let key = (access.purpose, kind.group, access.verbs);
            rules.entry(key).or_default().insert(resource(kind.plural, access));
        }
    }
    let (mut text, mut said) = (String::new(), "");
    for ((purpose, group, verbs), resources) in &rules {
        if *purpose != said {
            writeln!(text, "# {purpose}").unwrap();
            said = purpose;
        }
        text += &rule(group, resources, verbs);
    }
    text
}

fn resource(plural: &str, access: &WriteAccess) -> String {
    match access.part {
        ObjectPart::Object => plural.to_owned(),
        ObjectPart::Status => format!("{plural}/status"),
    }
}

/// A right: which role, which verb, which resource of which group.
type Right = (String, String, String, String);

/// What rules are about that are no kinds of the table.
const OTHER_RESOURCES: [&str; 2] = ["events", "leases"];

#[test]
fn the_plain_manifest_grants_every_row_and_no_more() {
    let granted = granted("deploy/namewall.yaml");
    let mut wanted = BTreeSet::new();
    let mut missing = Vec::new();
    for kind in KINDS {
        let mut want = |role: &str, verb: &str, resource: &str| {
            let right: Right = (role.into(), verb.into(), resource.into(), kind.group.into());
            if !granted.contains(&right) {
                missing.push(format!("{}: {role} may not {verb} {resource}.{}", kind.name, kind.group));
            }
            wanted.insert(right);
        };
        for (component, name) in [(Component::Agent, "agent"), (Component::Controller, "controller")] {
            if kind.watched_by.contains(&component) {
                WATCH.iter().for_each(|verb| want(&format!("ClusterRole namewall-{name}"), verb, kind.plural));
            }
            for access in kind.write_access().filter(|access| access.by == component) {
                let role = if access.within == Within::Cluster { "ClusterRole" } else { "Role" };
                let resource = resource(kind.plural, access);
                access.verbs.iter().for_each(|verb| want(&format!("{role} namewall-{name}"), verb, &resource));
            }
        }
    }
    let of_kinds = granted.iter().filter(|(_, _, resource, _)| !OTHER_RESOURCES.contains(&resource.as_str()));
    let more: Vec<&Right> = of_kinds.filter(|right| !wanted.contains(*right)).collect();
    assert!(missing.is_empty(), "deploy/namewall.yaml lacks rights of the table of kinds:\n{}", missing.join("\n"));
    assert!(more.is_empty(), "deploy/namewall.yaml grants what no row of the table of kinds asks for: {more:#?}");
}

/// The rights in the roles of a manifest.
fn granted(path: &str) -> BTreeSet<Right> {
    let (documents, findings) = Document::read_all(&path.into(), &read(path));
    assert!(findings.is_empty(), "{findings:?}");
    let mut granted = BTreeSet::new();
    for document in documents.iter().filter(|one| matches!(one.kind(), Some("ClusterRole" | "Role"))) {
        let role = format!("{} {}", document.kind().unwrap(), document.name().unwrap());
        for rule in items(document.node.get("rules").unwrap()) {
            let texts = |key: &str| items(rule.get(key).unwrap()).iter().map(|one| one.as_str().unwrap().to_owned());
            for (group, verb) in
                texts("apiGroups").flat_map(|group| texts("verbs").map(move |verb| (group.clone(), verb)))
            {
                let right = |resource| (role.clone(), verb.clone(), resource, group.clone());
                granted.extend(texts("resources").map(right));
            }
        }
    }
    assert!(granted.len() > 10, "the roles were found");
    granted
}

fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::Seq(items) => items,
        other => panic!("no list: {other:?}"),
    }
}
