//! Answers for a namewall that runs.

use super::Firewall;
use crate::commands::explain::{Answer, Asked};
use anyhow::{Context, Result};
use namewall_kubernetes::Published;
use namewall_policy::ask::{Host, Names, Target, World};
use namewall_policy::domain::{DomainName, DomainPattern};
use namewall_policy::explain::describe_rule;
use namewall_policy::model::Direction;
use namewall_policy::program::Matcher;
use namewall_policy::{Instant, Lease, Program, Snapshot};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Nobody asks at greater length.
const LONGEST: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers until the process ends.
pub(super) fn serve(listener: &UnixListener, firewall: &Arc<Mutex<Firewall>>, successor: &Mutex<Option<UnixStream>>) {
    for stream in listener.incoming().flatten() {
        // Whoever asks and does not read must not keep the others waiting for ever.
        let _ = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        if let Ok(Some(asks)) = answer(stream, firewall) {
            *successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(asks);
        }
    }
}

/// Answers a question; gives the stream back if somebody wants to take over.
fn answer(stream: UnixStream, firewall: &Mutex<Firewall>) -> std::io::Result<Option<UnixStream>> {
    let mut question = String::new();
    let mut reader = BufReader::new(stream);
    if (&mut reader).take(LONGEST).read_line(&mut question)? == 0 {
        // Somebody only looks whether we are here.
        return Ok(None);
    }
    let question: Value = serde_json::from_str(&question).unwrap_or_default();
    if question["handOver"].as_bool() == Some(true) {
        return Ok(Some(reader.into_inner()));
    }
    let firewall = firewall.lock().unwrap_or_else(PoisonError::into_inner);
    let told = if !question["status"].is_null() {
        Ok(status(&firewall))
    } else if !question["leases"].is_null() {
        leases(&firewall, &question["leases"])
    } else if !question["explain"].is_null() {
        explain(&firewall, &question["explain"])
    } else {
        Err(anyhow::anyhow!("it does not know what to do with this; is it another version of namewall?"))
    };
    drop(firewall);
    let told = told.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
    writeln!(reader.get_mut(), "{told}")?;
    Ok(None)
}

fn status(firewall: &Firewall) -> Value {
    let Firewall { node, snapshot, dns, findings, kept, .. } = firewall;
    let server = node.dns();
    let counters = server.map(|server| server.counters());
    let queries: serde_json::Map<String, Value> =
        counters.iter().flat_map(|all| all.iter()).map(|(name, count)| (name.to_owned(), count.into())).collect();
    let learned = node.counters();
    let (leases, evictions) = node.with_kernel(|nft| (nft.leases().len(), nft.leases().evictions()));
    json!({
        "pid": std::process::id(),
        "seconds": firewall.started.elapsed().as_secs(),
        "node": firewall.node_name,
        "pods": snapshot.pod_count(),
        "policies": snapshot.policies.len(),
        "changes": firewall.changes,
        "findings": findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "keptFiles": kept.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "lastError": firewall.last_error,
        "trouble": firewall.trouble.iter().map(|one| json!({"kind": one.kind, "what": one.what})).collect::<Vec<_>>(),
        "dns": {
            "listens": server.map_or(&[][..], |server| server.addresses()).iter().map(ToString::to_string).collect::<Vec<_>>(),
            "intercepts": node.with_kernel(|nft| nft.takes_dns()),
            "upstreams": server.map(|server| server.upstreams()).unwrap_or_default().iter().map(|one| json!({
                "address": one.address.to_string(), "up": one.is_up, "answered": one.answered, "failed": one.failed,
            })).collect::<Vec<_>>(),
            "trusted": dns.trusted.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "counts": queries,
        },
        "names": {
            "leases": leases,
            "answersLearned": learned.learned,
            "addressesRefused": learned.refused,
            "addressesForeign": learned.foreign,
            "failures": learned.failed,
            "evicted": evictions.addresses_a_name + evictions.names_a_pattern + evictions.leases,
        },
        "shared": firewall.publisher.as_ref().map(|publisher| {
            let Published { written, conflicts, failed, left_out, late } = publisher.counts();
            json!({"written": written, "conflicts": conflicts, "failed": failed, "leftOut": left_out, "late": late})
        }),
        "denials": firewall.denials.load(std::sync::atomic::Ordering::Relaxed),
    })
}

/// Leases that are open now, by name and address.
fn leases(firewall: &Firewall, asked: &Value) -> Result<Value> {
    let wanted: Option<DomainName> = match asked["name"].as_str() {
        Some(name) => Some(name.parse()?),
        None => None,
    };
    let (program, now) = (firewall.node.program(), firewall.node.now());
    // What no rule speaks of any more opens nothing.
    let patterns: std::collections::HashSet<_> = program.patterns.iter().map(|(_, pattern)| pattern).collect();
    let is_wanted = |lease: &Lease| {
        lease.expiry > now
            && patterns.contains(&lease.pattern)
            && wanted.as_ref().is_none_or(|name| lease.name == *name || lease.name.is_under(name))
    };
    let mut open: Vec<Lease> = firewall.node.with_kernel(|nft| nft.leases().all().filter(is_wanted).collect());
    open.sort_by(|a, b| (&a.name, a.address, &a.pattern).cmp(&(&b.name, b.address, &b.pattern)));
    let told: Vec<Value> = open.iter().map(|lease| tell_lease(firewall, program, lease, now)).collect();
    Ok(json!({ "leases": told }))
}

fn tell_lease(firewall: &Firewall, program: &Program, lease: &Lease, now: Instant) -> Value {
    let by = lease.asked_by.map(|address| match program.endpoint_at(address).workload {
        Some(id) => firewall.snapshot.workload_name(id),
        None => address.to_string(),
    });
    json!({
        "name": lease.name.as_str(),
        "address": lease.address.to_string(),
        "pattern": lease.pattern.to_string(),
        "rules": rules_of((&firewall.snapshot, program), &lease.pattern),
        "askedBy": by,
        "secondsLeft": lease.expiry.0.saturating_sub(now.0).as_secs(),
    })
}

/// The rules that speak of the pattern.
pub(crate) fn rules_of((snapshot, program): (&Snapshot, &Program), pattern: &DomainPattern) -> Vec<String> {
    let speaks = |matcher: &Matcher| match matcher {
        Matcher::Clauses { peers, .. } => {
            program.peer_set(*peers).domains.iter().any(|id| program.patterns.get(*id) == pattern)
        }
        _ => false,
    };
    let rules = program.rules.iter().enumerate();
    let own = rules.filter(|(_, rule)| rule.direction == Direction::Egress && speaks(&rule.matcher));
    own.map(|(at, _)| describe_rule(snapshot, program, namewall_policy::program::RuleId(at as u32))).collect()
}

fn explain(firewall: &Firewall, asked: &Value) -> Result<Value> {
    let text = |key: &str| asked[key].as_str().with_context(|| format!("`{key}` is missing"));
    let from: Host = text("from")?.parse()?;
    let to: Target = text("to")?.parse()?;
    let now = firewall.node.now();
    firewall.node.with_kernel(|nft| {
        let leases = nft.leases();
        let mut names = Names::new();
        if let Host::Name(name) = &to.host {
            let leased = leases.addresses_of(name).filter(|(_, expiry)| *expiry > now);
            names.insert(name.clone(), leased.map(|(address, _)| address).collect());
        }
        let is_leased = names.values().any(|addresses| !addresses.is_empty());
        let world = World {
            snapshot: &firewall.snapshot,
            program: firewall.node.program(),
            leases,
            names: &names,
            cluster_domain: &firewall.cluster_domain,
            now,
        };
        let asked_about = Asked { from: &from, to: &to };
        let answer = Answer::new(world, &asked_about)?;
        let answer = if is_leased { answer } else { answer.without_lease(&asked_about)? };
        let mut told = Vec::new();
        if asked["json"].as_bool() == Some(true) {
            serde_json::to_writer_pretty(&mut told, &answer.json())?;
            told.push(b'\n');
        } else {
            answer.print(&mut told)?;
        }
        Ok(json!({"verdict": answer.verdict.to_string(), "text": String::from_utf8_lossy(&told)}))
    })
}
