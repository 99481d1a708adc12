//! `namewall rules --live`: the kernel's table in words.

use super::load;
use crate::cli::Rules;
use crate::commands::run::time;
use crate::output::{self, BAD, GOOD, SOFT, STRONG, WARN};
use anyhow::{Context, Result, bail};
use namewall_dataplane::nft::rule::Walk;
use namewall_dataplane::nft::view::{ClassView, Effect, Part, RuleView, View, WalkView, view};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

/// So many pods of a group are named.
const SHOWN: usize = 8;

/// The names of pods by their addresses: namespace and pod.
type Names = BTreeMap<IpAddr, PodName>;

struct PodName {
    namespace: String,
    pod: String,
}

impl PodName {
    fn full(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }
}

pub(super) fn run(args: &Rules) -> Result<ExitCode> {
    let (names, exit) = names(args)?;
    if names.is_empty() && (args.namespace.is_some() || args.pod.as_ref().is_some_and(|pod| pod.contains('/'))) {
        bail!("the kernel knows pods by their addresses only: add the PATH of manifests that have their names");
    }
    if let Some(pod) = &args.pod {
        has_pod(pod, &names, args)?;
    }
    if let Some(namespace) =
        args.namespace.as_ref().filter(|wanted| names.values().all(|name| name.namespace != **wanted))
    {
        bail!("the input has no pod with an address in the namespace {namespace}");
    }
    let table = &args.table;
    let found = view(table).with_context(|| format!("cannot read the table inet {table}"))?;
    let Some(found) = found else {
        bail!(
            "there is no table inet {table} of this version of namewall in the kernel: nothing is enforced here. Start \
             `namewall run` or `namewall agent`, name another table with --table, or leave --live out to see what a \
             table would have"
        );
    };
    let is_meant = |address: &IpAddr| {
        let name = names.get(address);
        args.namespace.as_ref().is_none_or(|namespace| name.is_some_and(|name| name.namespace == *namespace))
            && args.pod.as_ref().is_none_or(|pod| match pod.parse::<IpAddr>() {
                Ok(wanted) => *address == wanted,
                Err(_) => name.is_some_and(|name| name.full() == *pod),
            })
    };
    // Without manifests nobody knows a pod that has no rule here: the address may be a slip.
    let is_there = || found.classes.iter().any(|class| class.addresses.iter().any(&is_meant));
    if let Some(pod) = args.pod.as_ref().filter(|_| args.paths.is_empty() && !is_there()) {
        bail!(
            "the table inet {table} has no rule for a pod {pod}: it has no policies, or there is no such pod. Add the PATH \
             of manifests to tell which"
        );
    }
    let mut out = output::stdout();
    let printed = print(&mut out, &found, &names, is_meant).and_then(|()| Ok(out.flush()?));
    output::unless_closed(printed)?;
    Ok(exit)
}

/// A pod that is asked for must be one that manifests have, or be asked for by its address.
fn has_pod(pod: &str, names: &Names, args: &Rules) -> Result<()> {
    let known = match pod.parse::<IpAddr>() {
        Ok(address) => args.paths.is_empty() || names.contains_key(&address),
        Err(_) if !pod.contains('/') => bail!("`{pod}` is neither NAMESPACE/POD nor an address"),
        Err(_) => names.values().any(|name| name.full() == *pod),
    };
    match known {
        true => Ok(()),
        false => bail!("there is no pod {pod} with an address in the input"),
    }
}

/// The names that manifests have for addresses, where there are any.
fn names(args: &Rules) -> Result<(Names, ExitCode)> {
    if args.paths.is_empty() {
        return Ok((Names::new(), ExitCode::SUCCESS));
    }
    let loaded = load(args)?;
    loaded.report_errors();
    let mut names = Names::new();
    for workload in loaded.snapshot.workloads.iter() {
        let namespace = loaded.snapshot.namespace(workload.namespace).name.to_string();
        for address in workload.addresses.iter() {
            let name = PodName { namespace: namespace.clone(), pod: workload.name.to_string() };
            names.insert(*address, name);
        }
    }
    Ok((names, loaded.unread.exit(ExitCode::SUCCESS)))
}

fn print(out: &mut impl Write, view: &View, names: &Names, is_meant: impl Fn(&IpAddr) -> bool) -> Result<()> {
    let shown: Vec<&ClassView> = view.classes.iter().filter(|class| class.addresses.iter().any(&is_meant)).collect();
    if shown.is_empty() {
        writeln!(out, "no pod of the table that is asked for has policies")?;
    }
    for (at, class) in shown.into_iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{STRONG}{}{STRONG:#}", pods(&class.addresses, names))?;
        for walk in &class.walks {
            print_walk(out, walk)?;
        }
    }
    Ok(())
}

/// `shop/web 10.0.0.1 fd00::1, shop/api 10.0.0.2`, or the addresses alone.
fn pods(addresses: &[IpAddr], names: &Names) -> String {
    let mut pods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for address in addresses {
        match names.get(address) {
            Some(name) => pods.entry(name.full()).or_default().push(address.to_string()),
            None => _ = pods.entry(address.to_string()).or_default(),
        }
    }
    let more = pods.len().saturating_sub(SHOWN);
    let text = |(name, addresses): (&String, &Vec<String>)| {
        std::iter::once(name).chain(addresses).cloned().collect::<Vec<_>>().join(" ")
    };
    let list = pods.iter().take(SHOWN).map(text).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}

fn print_walk(out: &mut impl Write, walk: &WalkView) -> Result<()> {
    let title = match walk.part {
        Part::Pods(Walk::Egress) => "egress",
        Part::Pods(Walk::Ingress) => "ingress",
        Part::Gates => "cluster firewalls, for a pod of another node that asks a node port of this one",
        Part::Pods(Walk::AuditEgress) => "egress with audited policies: nothing is denied by it",
        Part::Pods(Walk::AuditIngress) => "ingress with audited policies: nothing is denied by it",
        Part::AuditGates => "the same with audited firewalls: nothing is denied by it",
    };
    writeln!(out, "  {title}")?;
    for rule in &walk.rules {
        print_rule(out, rule)?;
    }
    Ok(())
}

fn print_rule(out: &mut impl Write, rule: &RuleView) -> Result<()> {
    let (style, word) = match rule.effect {
        Effect::Allow => (GOOD, "allow"),
        Effect::Deny => (BAD, "deny"),
        Effect::Continue => (WARN, "go on"),
    };
    let Some(label) = &rule.label else {
        writeln!(out, "    {style}{word:5}{style:#}  anything else")?;
        return Ok(());
    };
    let matches = rule.matches.join(" or ");
    let times = match rule.count.map(|count| count.packets) {
        None => String::new(),
        Some(1) => " (once)".to_owned(),
        Some(packets) => format!(" ({packets} times)"),
    };
    writeln!(out, "    {style}{word:5}{style:#}  {label}: {matches}{SOFT}{times}{SOFT:#}")?;
    for lease in &rule.leases {
        let name = lease.name.as_ref().map_or_else(|| "a name".to_owned(), ToString::to_string);
        writeln!(out, "           {name} {} for {} more", lease.address, time(lease.left.as_secs()))?;
    }
    Ok(())
}
