//! What can be read, and is probably not meant; and what only all server blocks together show.

use crate::facts;
use crate::problem::Report;
use crate::{Bind, BindAt, FileSpan, Firewall, Point, RuleKind, ServerBlock, Written, Zone};
use std::collections::{HashMap, HashSet};

pub(crate) fn lint(servers: &[ServerBlock], report: &mut Report) {
    served_twice(servers, report);
    for server in servers {
        for list in &server.firewalls {
            ends(list, report);
        }
        unused_engines(server, report);
        only_responses(server, report);
        cluster_of_all(server, report);
        facts::lint(server, report);
        let labels = server.edns0.iter().map(|field| ("label", &*field.label, &field.place));
        let engines = server.engines.iter().map(|engine| ("engine", &*engine.name, &engine.place));
        let rules = server.firewalls.iter().flat_map(|list| &list.rules);
        let rules = rules.filter_map(|rule| Some(("rule", &**rule.name.as_ref()?, &rule.place)));
        named_twice(labels.chain(engines).chain(rules), report);
    }
}

/// A zone at a port is one server block's.
fn served_twice(servers: &[ServerBlock], report: &mut Report) {
    let mut seen: HashMap<(&Zone, u16), Vec<(&ServerBlock, &FileSpan)>> = HashMap::new();
    for server in servers {
        for key in &server.keys {
            let before = seen.entry((&key.zone, key.port)).or_default();
            // A view leaves questions for blocks behind it.
            let meets =
                |(other, _): &&(&ServerBlock, &FileSpan)| other.view.is_none() && may_meet(&other.bind, &server.bind);
            if let Some((_, first)) = before.iter().find(meets) {
                let message = format!("`{}` at port {} is served already", key.zone, key.port);
                report.error("defined-twice", &key.place, message).help(format!("by {first}: remove one of them"));
            } else {
                before.push((server, &key.place));
            }
        }
    }
}

/// Whether two server blocks are certain to listen at one address.
fn may_meet(one: &[Bind], other: &[Bind]) -> bool {
    fn at(binds: &[Bind]) -> impl Iterator<Item = &BindAt> {
        binds.iter().flat_map(|bind| bind.at.iter().filter(|at| !bind.except.contains(at)))
    }
    if one.is_empty() || other.is_empty() {
        return one.is_empty() && other.is_empty();
    }
    at(one).any(|address| at(other).any(|known| known == address))
}

/// What is certain to be the end of a list, and what stands after it.
fn ends(list: &Firewall, report: &mut Report) {
    let is_certain = |kind: &RuleKind| match kind {
        RuleKind::Expression { outcome, text, .. } => outcome.is_defined() && &*text.text == "true",
        RuleKind::Engine { .. } => false,
    };
    let Some(end) = list.rules.iter().position(|rule| is_certain(&rule.kind)) else {
        // What stands for a list is not written with a default.
        let is_written = list.rules.first().is_none_or(|rule| rule.place != list.place);
        if list.default.is_none() && is_written {
            let form = match list.written {
                Written::Seed(_) => "a list with a zone",
                Written::Shipped => "a list without a zone",
            };
            report
                .warning("no-default", &list.place, "it is not said what counts at the end of this list")
                .help(format!("in {form} it is `{0}`: write `default {0}`", list.at_end()));
        }
        return;
    };
    for rule in &list.rules[end + 1..] {
        report
            .warning("unreachable-rule", &rule.place, "this rule is never asked")
            .help(format!("the one on line {} always holds", list.rules[end].place.line));
    }
}

/// A cluster that has all names leaves none to others.
fn cluster_of_all(server: &ServerBlock, report: &mut Report) {
    let Some(cluster) = &server.kubernetes else { return };
    let has_all = match cluster.zones.is_empty() {
        true => server.keys.iter().any(|key| key.zone.depth() == 0),
        false => cluster.zones.iter().any(|zone| zone.depth() == 0),
    };
    if has_all && cluster.fallthrough.is_empty() && !server.forwards.is_empty() {
        report
            .warning("all-names", &cluster.place, "`kubernetes` answers for all names: none is forwarded")
            .help("write the zones of the cluster: `kubernetes cluster.local in-addr.arpa ip6.arpa {`");
    }
}

/// Lists for responses alone let every question pass.
fn only_responses(server: &ServerBlock, report: &mut Report) {
    let Some(first) = server.firewalls.first() else { return };
    if server.firewalls.iter().all(|list| list.point == Point::Response) {
        report
            .warning("no-query-rules", &first.place, "every question passes: all rules here are about responses")
            .help("write `firewall query {`, its rules and `}`; with `default allow` alone it says that this is meant");
    }
}

fn unused_engines(server: &ServerBlock, report: &mut Report) {
    let mut used = HashSet::new();
    for rule in server.firewalls.iter().flat_map(|list| &list.rules) {
        match &rule.kind {
            RuleKind::Engine { name, .. } | RuleKind::Expression { engine: Some(name), .. } => {
                used.insert(name.clone());
            }
            RuleKind::Expression { engine: None, .. } => {}
        }
    }
    for engine in server.engines.iter().filter(|engine| !used.contains(&engine.name)) {
        let word = engine.engine.word();
        report.warning("unused-engine", &engine.place, format!("no rule asks the engine `{}`", engine.name)).help(
            match word {
                "expression" => format!("write `{} permit …` in a list", engine.name),
                _ => format!("write `{word} {}` in a list", engine.name),
            },
        );
    }
}

/// Engines and labels of several directives, which share one room each.
fn named_twice<'a>(names: impl Iterator<Item = (&'static str, &'a str, &'a FileSpan)>, report: &mut Report) {
    let mut seen = HashSet::new();
    for (what, name, place) in names {
        if !seen.insert((what, name)) {
            report
                .error("defined-twice", place, format!("the {what} `{name}` is there already"))
                .help("call one of them otherwise");
        }
    }
}
