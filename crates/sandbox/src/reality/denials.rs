//! What the kernel tells of the packets that it denies, held against what the core says of probes.

use namewall_dataplane::nflog::Denied;
use namewall_policy::port::Protocol;
use namewall_policy::{Cause, Flow, Program, Reason};
use namewall_scenario::Predicted;
use std::net::IpAddr;

/// What the kernel tells of a denied packet.
type Told = (Option<IpAddr>, Option<IpAddr>, Protocol, u16);

/// The probes in batches. Of two that go to one backend by different ways, one may be denied, and the kernel tells of
/// the backend alone: they are not tried at the same time.
pub(super) fn apart(probes: &[&Predicted]) -> Vec<Vec<usize>> {
    let told = |flow: &Flow| -> Vec<Told> {
        let hop = flow.hop.map(|hop| (flow.from.address, Some(hop.address), flow.protocol, hop.port));
        [(flow.from.address, flow.to.address, flow.protocol, flow.port)].into_iter().chain(hop).collect()
    };
    let all =
        |one: &Predicted| -> Vec<Told> { one.routes.iter().flat_map(|route| &route.flows).flat_map(told).collect() };
    let mut batches: Vec<Vec<(usize, Vec<Told>)>> = Vec::new();
    for (at, one) in probes.iter().enumerate() {
        let own = all(one);
        let is_other_way = |other: &(usize, Vec<Told>)| {
            probes[other.0].probe.to != one.probe.to && other.1.iter().any(|told| own.contains(told))
        };
        match batches.iter_mut().find(|batch| !batch.iter().any(is_other_way)) {
            Some(batch) => batch.push((at, own)),
            None => batches.push(vec![(at, own)]),
        }
    }
    batches.into_iter().map(|batch| batch.into_iter().map(|(at, _)| at).collect()).collect()
}

/// What the kernel told of denials.
pub(super) struct KernelDenials<'a> {
    pub(super) program: &'a Program,
    pub(super) denials: &'a [Denied],
}

/// The kernel tells of so many at once, and of fewer later.
const TOLD: usize = 12;

impl KernelDenials<'_> {
    /// Whether the kernel gave the reason the core gives.
    pub(super) fn check(&self, predicted: &Predicted, at_once: usize) -> Result<String, String> {
        let (reason, enforced) = match (&predicted.decision.reason, &predicted.decision.would_deny) {
            (reason @ Reason::Denied { .. }, _) => (reason, true),
            (_, Some(reason)) => (reason, false),
            _ => return self.nothing_told(predicted),
        };
        let is_it = |denied: &&Denied| is_about(&predicted.flow, denied) && denied.enforced == enforced;
        let expected = self.label(reason);
        let told: Vec<&str> = self.denials.iter().filter(is_it).map(|denied| denied.rule.as_str()).collect();
        if told.iter().any(|rule| expected.is_told_by(rule)) {
            return Ok(format!("{}, told of as {}", if enforced { "silence" } else { "open" }, told[0]));
        }
        match told.first() {
            Some(rule) => Err(format!("denied by {rule}, where the core says {expected:?}")),
            None if at_once > TOLD || predicted.flow.may_be_masked() || predicted.flow.from.address.is_none() => {
                Ok("silence".to_owned())
            }
            None => Err(format!("the kernel did not tell of it; the core says {expected:?}")),
        }
    }

    fn nothing_told(&self, predicted: &Predicted) -> Result<String, String> {
        match self.denials.iter().find(|denied| is_about(&predicted.flow, denied)) {
            Some(denied) => Err(format!("the kernel told of {}", denied.rule)),
            None => Ok("open".to_owned()),
        }
    }

    fn label(&self, reason: &Reason) -> Label {
        let Reason::Denied { stage, cause } = reason else { return Label::Anything };
        match cause {
            Cause::Rule(id) => {
                let rule = self.program.rule(*id);
                let policy = &self.program.policy(rule.policy).id;
                Label::Rule { policy: policy.to_string(), direction: rule.direction.to_string(), index: rule.index }
            }
            _ => Label::Isolated(stage.direction().to_string()),
        }
    }
}

fn is_about(flow: &Flow, denied: &Denied) -> bool {
    let seen = |to, port| (Some(denied.destination), denied.port) == (to, port);
    let addressed = flow.hop.is_some_and(|hop| seen(Some(hop.address), hop.port));
    Some(denied.source) == flow.from.address
        && denied.protocol == flow.protocol
        && (seen(flow.to.address, flow.port) || addressed)
}

/// How the kernel calls what denied.
#[derive(Debug)]
enum Label {
    Rule { policy: String, direction: String, index: u32 },
    Isolated(String),
    Anything,
}

impl Label {
    fn is_told_by(&self, rule: &str) -> bool {
        match self {
            Self::Rule { policy, direction, index } => {
                let one = format!("{policy} {direction} rule {index}");
                let several = format!("{policy} {direction} rules ");
                let within = |range: &str| {
                    let (first, last) = range.split_once('-')?;
                    Some((first.parse::<u32>().ok()?..=last.parse().ok()?).contains(index))
                };
                rule == one || rule.strip_prefix(&several).and_then(within).unwrap_or(false)
            }
            Self::Isolated(direction) => rule.starts_with(&format!("isolated for {direction}")),
            Self::Anything => true,
        }
    }
}
