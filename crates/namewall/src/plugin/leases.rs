//! `kubectl namewall leases`: what the statuses of DNSNameResolvers open.

use super::live::LiveCluster;
use crate::cli::Leases;
use crate::commands::print_leases;
use anyhow::Result;
use namewall_agent::rules_of;
use namewall_policy::Lease;
use namewall_policy::domain::DomainName;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::process::ExitCode;

pub(super) fn run(asked: &Leases, cluster: &LiveCluster) -> Result<ExitCode> {
    let (loaded, shared) = cluster.read()?;
    let now = jiff::Timestamp::now().as_second();
    // Two objects may have the same name: the later lookup counts.
    let mut left: HashMap<(DomainName, IpAddr), i64> = HashMap::new();
    for one in &shared {
        let Ok(name) = one.name.parse() else { continue };
        let seconds = one.looked_up + i64::from(one.ttl_seconds) - now;
        let known = left.entry((name, one.address)).or_default();
        *known = seconds.max(*known);
    }
    let is_wanted = |name: &DomainName| asked.name.as_ref().is_none_or(|one| one.includes(name));
    let mut open: Vec<Lease> = loaded.leases.all().filter(|lease| is_wanted(&lease.name)).collect();
    open.sort_by(|a, b| (&a.name, a.address, &a.pattern).cmp(&(&b.name, b.address, &b.pattern)));
    let tell = |lease: &Lease| {
        json!({
            "name": lease.name.as_str(),
            "address": lease.address.to_string(),
            "pattern": lease.pattern.to_string(),
            "effect": lease.pattern.effect.to_string(),
            "rules": rules_of(&loaded.snapshot, &loaded.program, &lease.pattern),
            "askedBy": null,
            "secondsLeft": left.get(&(lease.name.clone(), lease.address)).copied().unwrap_or(0),
        })
    };
    print_leases(&Value::Array(open.iter().map(tell).collect()), asked.live.output)?;
    Ok(ExitCode::SUCCESS)
}
