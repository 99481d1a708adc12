//! `audit-paths --attack`: each way is tried with packets, in a sandbox of the
//! same objects, and what is seen is put beside what was predicted.

use super::chains::{self, PortRef};
use super::path::Way;
use super::trial::Coverage;
use crate::commands::sandbox::{Completed, complete, hosts_outside};
use crate::input::{Loaded, NOW};
use crate::output::{BAD, GOOD, SOFT, STRONG};
use anyhow::{Context, Result};
use namewall_dataplane::CutEstablished;
use namewall_policy::ask::{Host, Route, Target};
use namewall_policy::{Lease, LeaseRef, Prediction};
use namewall_sandbox::{Answer, Cluster, Question, Wanted, ensure_rights};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;

/// A connection that takes a way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attempt {
    pub(super) way: Way,
    /// Who takes it, as it is shown.
    pub(super) source: String,
    pub(super) from: Host,
    pub(super) to: Target,
    /// The port of a Service that it enters, which may lead to other Services.
    pub(super) through: Option<PortRef>,
}

/// What came of an attempt.
pub(super) struct Tried {
    attempt: Attempt,
    predicted: Prediction,
    on_the_way: OnTheWay,
    seen: Answer,
}

/// What may decide that the input does not describe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnTheWay {
    Nothing,
    SourceNat,
    /// Whether another node gets it and translates it again. Otherwise the last address may be a node's, which refuses.
    Routes,
}

impl OnTheWay {
    fn of(question: &Question<'_>) -> Self {
        if question.may_be_masked() { Self::SourceNat } else { Self::Nothing }
    }
}

impl Tried {
    /// In the kernel, what depends on something unknown is closed, unless something on the way decides.
    fn is_as_predicted(&self) -> bool {
        match self.seen {
            Answer::Open if self.predicted == Prediction::Depends => self.on_the_way != OnTheWay::Nothing,
            Answer::Open => self.predicted == Prediction::Allow,
            Answer::Silent => self.predicted != Prediction::Allow,
            Answer::Odd { .. } => self.on_the_way == OnTheWay::Routes,
            // Nobody can try it, so nothing was seen that differs.
            Answer::NoWay => true,
        }
    }

    pub(super) fn was_tried(&self) -> bool {
        self.seen != Answer::NoWay
    }

    fn predicted(&self) -> &'static str {
        match self.predicted {
            Prediction::Allow => "open",
            Prediction::Deny => "closed",
            Prediction::Depends => "depends",
        }
    }

    fn seen(&self) -> String {
        match &self.seen {
            Answer::Open => "open".to_owned(),
            Answer::Silent => "closed".to_owned(),
            Answer::Odd { measured, .. } => measured.to_string(),
            Answer::NoWay => "not tried".to_owned(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "way": self.attempt.way.word(),
            "from": self.attempt.source,
            "to": self.attempt.to.to_string(),
            "predicted": self.predicted(),
            "seen": self.seen(),
            "asPredicted": self.is_as_predicted(),
        })
    }
}

/// Gets what a sandbox needs, before the process has a second thread: rights, and addresses for workloads without.
pub(super) fn prepare(load: impl FnOnce() -> Result<Loaded>) -> Result<(Loaded, Vec<String>)> {
    ensure_rights().context("--attack needs network namespaces")?;
    let mut loaded = load()?;
    let Completed { left_out, .. } = complete(&mut loaded);
    Ok((loaded, left_out))
}

/// Builds the sandbox and tries all attempts.
pub(super) fn run(loaded: &Loaded, attempts: Vec<Attempt>) -> Result<Vec<Tried>> {
    let world = loaded.world();
    let mut routes: Vec<Vec<Route>> = Vec::new();
    for attempt in &attempts {
        routes.push(world.routes(&attempt.from, &attempt.to)?);
    }
    let outside = outside(loaded, &attempts, &routes);
    let (snapshot, program) = (&loaded.snapshot, &loaded.program);
    let wanted = Wanted { snapshot, program, outside: &outside, cut: CutEstablished::Always, dns: None };
    let mut cluster = Cluster::build(&wanted, &mut |_| {}).context("cannot build the sandbox")?;
    let leases: Vec<Lease> = loaded.leases.iter().map(LeaseRef::to_lease).collect();
    cluster.grant(&leases, NOW).context("cannot grant leases")?;
    let questions: Vec<Question<'_>> = attempts
        .iter()
        .zip(&routes)
        .map(|(attempt, routes)| Question { target: &attempt.to, routes, predicted: world.predict(routes) })
        .collect();
    let predicted = questions.iter().zip(&attempts).map(|(one, attempt)| {
        // What policies leave open may still lead nowhere.
        let leads_on = attempt.through.is_some_and(|start| chains::leads_on(&world, start));
        let way = if leads_on { OnTheWay::Routes } else { OnTheWay::of(one) };
        match one.predicted {
            Prediction::Allow if leads_on => (Prediction::Depends, way),
            predicted => (predicted, way),
        }
    });
    let predicted: Vec<(Prediction, OnTheWay)> = predicted.collect();
    let answers = cluster.ask(snapshot, &questions).context("cannot try the ways in the sandbox")?;
    let tried = attempts.into_iter().zip(predicted).zip(answers);
    let tried = tried.map(|((attempt, (predicted, on_the_way)), seen)| Tried { attempt, predicted, on_the_way, seen });
    Ok(tried.collect())
}

/// All ends of the attempts that are no pod's or node's.
fn outside(loaded: &Loaded, attempts: &[Attempt], routes: &[Vec<Route>]) -> Vec<IpAddr> {
    let clients = attempts.iter().filter_map(|attempt| match attempt.from {
        Host::Address(address) => Some(address),
        _ => None,
    });
    let flows = routes.iter().flatten().flat_map(|route| &route.flows);
    let ends = clients.chain(flows.filter_map(|flow| flow.to.address));
    let is_outside = |address: &IpAddr| {
        let end = loaded.program.endpoint_at(*address);
        end.workload.is_none() && end.node.is_none() && !loaded.program.service_addresses.contains(*address)
    };
    let named: BTreeSet<IpAddr> = ends.filter(is_outside).collect();
    hosts_outside(loaded, &named.into_iter().collect::<Vec<_>>())
}

/// Whether every way fares as predicted.
pub(super) fn agrees(tried: &[Tried]) -> bool {
    tried.iter().all(Tried::is_as_predicted)
}

pub(super) fn print(out: &mut impl Write, tried: &[Tried], coverage: &Coverage, left_out: &[String]) -> Result<()> {
    writeln!(out, "\n{STRONG}predicted  seen       tried with packets in a sandbox{STRONG:#}")?;
    for one in tried.iter().filter(|one| one.was_tried()) {
        let Attempt { way, source, to, .. } = &one.attempt;
        let style = if one.is_as_predicted() { GOOD } else { BAD };
        writeln!(
            out,
            "{:9}  {style}{:9}{style:#}  {}, from {source} to {to}",
            one.predicted(),
            one.seen(),
            way.text()
        )?;
    }
    coverage.lines().iter().try_for_each(|text| writeln!(out, "{SOFT}{text}{SOFT:#}"))?;
    left_out.iter().try_for_each(|text| writeln!(out, "{SOFT}{text}{SOFT:#}"))?;
    let count = tried.iter().filter(|one| one.was_tried()).count();
    match tried.iter().filter(|one| !one.is_as_predicted()).count() {
        0 => writeln!(out, "\n{GOOD}{count} connections tried, every one as predicted{GOOD:#}")?,
        wrong => writeln!(out, "\n{BAD}{wrong} of {count} connections are not as predicted{BAD:#}")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Trial, Unit, Untried};
    use super::*;
    use namewall_policy::port::Protocol;
    use namewall_sandbox::Measured;
    use std::net::{Ipv4Addr, SocketAddr};

    const AT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);

    fn tried(predicted: Prediction, seen: Answer) -> Tried {
        let host = Host::Address(AT.into());
        let to = Target { host: host.clone(), protocol: Protocol::Tcp, port: Some(443) };
        let attempt = Attempt { way: Way::Direct, source: "shop/web".to_owned(), from: host, to, through: None };
        Tried { attempt, predicted, on_the_way: OnTheWay::Nothing, seen }
    }

    #[test]
    fn what_is_listed_is_tried_or_told_as_not_tried() {
        let made = [tried(Prediction::Allow, Answer::Open), tried(Prediction::Deny, Answer::NoWay)];
        let unit = |way: &Way, to: &str, trial| {
            let (way, from, to) = (way.clone(), "shop/web".to_owned(), to.to_owned());
            Unit { way, from, to, trial }
        };
        let units = vec![
            unit(&Way::Direct, "192.0.2.66", Trial::By(0)),
            // One attempt stands for a network in two blocks.
            unit(&Way::Direct, "192.0.2.67", Trial::By(0)),
            unit(&Way::Direct, "2001:db8::1", Trial::By(1)),
            // A way to one address that is open in part and closed in part.
            unit(&Way::Name, "192.0.2.66", Trial::Never(Untried::Name)),
            unit(&Way::Name, "192.0.2.66", Trial::Never(Untried::Name)),
            unit(&Way::Name, "192.0.2.67", Trial::Never(Untried::Name)),
        ];
        let coverage = Coverage::new(units, &made);
        assert_eq!(coverage.counts(), json!({"listed": 6, "tried": 2, "notTried": 4}));
        let listed: usize = coverage.json().as_array().into_iter().flatten().map(count_of_ends).sum();
        assert_eq!(listed, 4);
        let mut out = Vec::new();
        print(&mut out, &made, &coverage, &[]).expect("it is printed");
        let text = String::from_utf8(out).expect("text");
        for line in [
            "not tried: directly, from shop/web to 2001:db8::1: the ends have no addresses of one family",
            "not tried: by a name that a rule allows, from shop/web to 192.0.2.66, 192.0.2.67: it needs an answer",
            "6 ways listed, 2 tried and 4 not",
            "1 connections tried, every one as predicted",
        ] {
            assert!(text.contains(line), "`{line}` is not in {text}");
        }
    }

    fn count_of_ends(one: &Value) -> usize {
        one["to"].as_array().map_or(0, Vec::len)
    }

    #[test]
    fn what_differs_from_the_prediction_is_told() {
        let refused = Answer::Odd { at: SocketAddr::new(AT.into(), 443), measured: Measured::Refused };
        let good = [
            tried(Prediction::Allow, Answer::Open),
            tried(Prediction::Deny, Answer::Silent),
            tried(Prediction::Depends, Answer::Silent),
            tried(Prediction::Deny, Answer::NoWay),
            Tried { on_the_way: OnTheWay::SourceNat, ..tried(Prediction::Depends, Answer::Open) },
            Tried { on_the_way: OnTheWay::SourceNat, ..tried(Prediction::Depends, Answer::Silent) },
        ];
        assert!(agrees(&good));
        for (predicted, seen) in [
            (Prediction::Allow, Answer::Silent),
            (Prediction::Deny, Answer::Open),
            (Prediction::Depends, Answer::Open),
            (Prediction::Deny, refused),
        ] {
            let differs = [tried(predicted, seen)];
            assert!(!agrees(&differs));
            let mut out = Vec::new();
            print(&mut out, &differs, &Coverage::new(Vec::new(), &differs), &[]).expect("it is printed");
            let text = String::from_utf8(out).expect("text");
            assert!(text.contains("1 of 1 connections are not as predicted"), "{text}");
        }
    }
}
