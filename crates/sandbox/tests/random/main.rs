//! Random clusters, with real packets: for every pair of ends the kernel must
//! say what the core says. A **series** begins with a cluster of its own and
//! goes from one to the next by `Cluster::update`, so that changes of the
//! table are tried and not only tables.
//!
//! `SEED=7 cargo test -p namewall-sandbox --test random` plays one series again;
//! `SERIES=100` plays more than CI does.

mod canonical;
#[path = "../common/mod.rs"]
mod common;
mod policy;
mod print;
mod questions;
mod tally;
mod world;

use canonical::differences;
use namewall_dataplane::CutEstablished;
use namewall_dataplane::conntrack::Conntrack;
use namewall_dataplane::netlink;
use namewall_dataplane::nflog::Denied;
use namewall_dataplane::render::{Ids, Scope, render};
use namewall_policy::lease::{NeverLeased, Revision, Rules};
use namewall_policy::port::Protocol;
use namewall_policy::reach::Reach;
use namewall_policy::{
    Cause, Decision, Lease, LeaseTable, Prediction, Program, Reason, Snapshot, Verdict, compile, compile_next, evaluate,
};
use namewall_sandbox::{Cluster, Measured, Probe, Wanted};
use namewall_testbed::Dice;
use questions::{Asking, Question};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tally::Tally;
use world::{NOW, World};

const SERIES: u64 = 10;
const CLUSTERS: usize = 21;
/// Half of a series is waiting for answers that do not come.
const AT_ONCE: usize = 3;
/// A probe that should get through and does not is tried again: the machine may be busy.
const REPEATS: usize = 4;
const TIMEOUT: Duration = Duration::from_millis(200);
/// How many of what is denied are listened for, one by one; a rule tells of ten a second.
const LISTENED_FOR: usize = 4;
const TOLD_AGAIN: Duration = Duration::from_millis(500);
/// How often a table is compared with a fresh one, and how often every agent is started anew.
const COMPARE: usize = 3;
const RESTART: usize = 7;

#[test]
fn the_kernel_judges_random_clusters_as_the_core_does() {
    if !common::has_rights() {
        return;
    }
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let one = number("SEED");
    let (next, last) = one.map_or((0, number("SERIES").unwrap_or(SERIES)), |seed| (seed, seed + 1));
    let (next, results) = (AtomicU64::new(next), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < last) {
                    let mut series = Series {
                        seed,
                        step: 0,
                        world: World::new(seed),
                        leases: LeaseTable::default(),
                        tally: Tally::default(),
                    };
                    let result = series.play().map(|()| series.tally).map_err(|error| format!("SEED={seed}: {error}"));
                    results.lock().expect("nobody panics with it").push(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("nobody panicked with it");
    let failed: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    let summary: Vec<&str> = failed.iter().filter_map(|failed| failed.lines().next()).collect();
    let summary = summary.join("\n");
    assert!(failed.is_empty(), "{} of {} series failed:\n{summary}\n\n{}", failed.len(), results.len(), failed[0]);
    let mut all = Tally::default();
    results.into_iter().flatten().for_each(|tally| all.add(tally));
    println!("{all}");
    if one.is_none() {
        all.is_worth_its_time();
    }
}

struct Series {
    seed: u64,
    step: usize,
    world: World,
    /// The leases as every node must have them.
    leases: LeaseTable,
    tally: Tally,
}

/// A cluster, and how the core judges it.
struct Now {
    snapshot: Snapshot,
    program: Program,
    leases: LeaseTable,
}

/// What the leases go on with: other rules, or a new process that finds those of the last.
#[derive(Clone, Copy)]
enum Going<'a> {
    On { before: Option<&'a Program> },
    Anew,
}

impl Now {
    fn decide(&self, question: &Question) -> Decision {
        evaluate(&self.program, &self.leases, &question.flow, NOW)
    }

    /// The answer of the offline commands. It is *depends* where source NAT decides, which no object describes.
    fn predict(&self, question: &Question) -> Prediction {
        match question.flow.hop {
            Some(_) => {
                Reach { program: &self.program, leases: &self.leases, now: NOW }.predict(&question.flow).prediction
            }
            None => self.decide(question).verdict.into(),
        }
    }
}

impl Series {
    fn play(&mut self) -> Result<(), String> {
        let outside = World::outside();
        let mut cluster: Option<Cluster> = None;
        let mut before: Option<(Snapshot, Program)> = None;
        for step in 0..CLUSTERS {
            self.step = step;
            let snapshot = self.world.snapshot();
            let (judge, findings) = compile(&snapshot);
            assert!(findings.iter().all(|finding| finding.code == "shared-address"), "{findings:?}");
            // What is enforced may be reached by way of the last; what it is held to is not.
            let program = match &before {
                Some((last, program)) => compile_next(last, program, &snapshot).0,
                None => judge.clone(),
            };
            let wanted = Wanted {
                snapshot: &snapshot,
                program: &program,
                outside: &outside,
                cut: CutEstablished::Always,
                dns: None,
            };
            let cluster = match &mut cluster {
                Some(cluster) => {
                    self.go_on(cluster, &wanted)?;
                    cluster
                }
                none => none.insert(self.begin(&wanted)?),
            };
            let is_restarted = step > 0 && step % RESTART == 2;
            let last = before.as_ref().map(|(_, program)| program);
            self.revise(&program, if is_restarted { Going::Anew } else { Going::On { before: last } });
            if is_restarted {
                self.remind(cluster, &snapshot)?;
            }
            let known = self.world.leases.len();
            self.world.learn();
            let new = &self.world.leases[known..];
            cluster.grant(new, NOW).map_err(|error| self.error(&error, &snapshot))?;
            new.iter().for_each(|lease| drop(self.leases.grant(lease.clone())));
            if step % RESTART == RESTART - 1 {
                self.restart(cluster, &wanted)?;
            }
            if step % COMPARE == 0 && self.world.whole {
                self.compare(cluster, &wanted)?;
            }
            // In every second series nodes put their address in the place of their pods' (S1.11).
            if self.seed % 2 == 1 {
                cluster.masquerade().map_err(|error| self.error(&error, &snapshot))?;
            }
            let now = Now { snapshot, program: judge, leases: self.leases.clone() };
            self.ask(cluster, &now)?;
            before = Some((now.snapshot, program));
            self.world.step();
        }
        Ok(())
    }

    /// Leases carry over to every pattern that allows their name, and go if they must not be (S6.3).
    fn revise(&mut self, program: &Program, going: Going<'_>) {
        let never_leased = NeverLeased::new("cluster.local".parse().expect("a name"));
        let rules = |program| Rules { program, never_leased: &never_leased };
        let before = match going {
            Going::On { before } => before.map(rules),
            Going::Anew => None,
        };
        self.leases.follow(&Revision { before, next: rules(program) });
        if matches!(going, Going::Anew) {
            self.world.leases.iter().for_each(|lease| drop(self.leases.grant(lease.clone())));
        }
    }

    fn begin(&self, wanted: &Wanted<'_>) -> Result<Cluster, String> {
        let mut cluster = Cluster::build(wanted, &mut |_| {}).map_err(|error| self.error(&error, wanted.snapshot))?;
        cluster.sandbox.timeout = TIMEOUT;
        for (_, namespace) in cluster.sandbox.nodes() {
            common::forget_soon(namespace);
        }
        Ok(cluster)
    }

    /// By the agents that are there, or now and then by new ones, who find the last cluster's tables.
    fn go_on(&self, cluster: &mut Cluster, wanted: &Wanted<'_>) -> Result<(), String> {
        let gone_on = match self.step % RESTART {
            2 => cluster.restart(wanted).map(drop),
            _ => cluster.update(wanted),
        };
        gone_on.map_err(|error| self.error(&error, wanted.snapshot))
    }

    /// A new process finds in the kernel exactly what it would put there. Where
    /// only pods changed, something may be left that nobody uses any more; and new
    /// leases may carry over to other patterns.
    fn restart(&mut self, cluster: &mut Cluster, wanted: &Wanted<'_>) -> Result<(), String> {
        let operations = cluster.restart(wanted).map_err(|error| self.error(&error, wanted.snapshot))?;
        let contents = |leases: &LeaseTable| leases.iter().map(|lease| format!("{lease:?}")).collect::<BTreeSet<_>>();
        let known = contents(&self.leases);
        self.revise(wanted.program, Going::Anew);
        let is_right = self.world.whole && contents(&self.leases) == known;
        if let Some((node, operations)) =
            operations.iter().find(|(_, operations)| **operations > 0).filter(|_| is_right)
        {
            let what = format!("{node}: {operations} operations to adopt a table that was right");
            return Err(self.told(&what, wanted.snapshot));
        }
        self.remind(cluster, wanted.snapshot)
    }

    /// Grants all leases again. A new process finds only those that the kernel has: not all names of an address, and
    /// none of patterns that no rule had.
    fn remind(&self, cluster: &mut Cluster, snapshot: &Snapshot) -> Result<(), String> {
        let all: Vec<Lease> = self.leases.all().collect();
        cluster.grant(&all, NOW).map_err(|error| self.error(&error, snapshot))
    }

    fn compare(&self, cluster: &Cluster, wanted: &Wanted<'_>) -> Result<(), String> {
        for (name, _) in cluster.sandbox.nodes() {
            let Some(mut table) = cluster.table(name) else { continue };
            // It comes with the first translated connection that is cut, and stays.
            table.chains.remove("cut-prerouting");
            let scope =
                Scope { node: wanted.snapshot.node_named(name), log_group: Cluster::LOG_GROUP, ..Scope::default() };
            let fresh = render(wanted.program, &scope, &Ids::default()).table;
            if let Some(difference) = differences(&table, &fresh).first() {
                return Err(self.told(&format!("{name} is not as a fresh one: {difference}"), wanted.snapshot));
            }
        }
        Ok(())
    }

    fn ask(&mut self, cluster: &mut Cluster, now: &Now) -> Result<(), String> {
        let failed = |this: &Self, error: &dyn std::error::Error| this.error(error, &now.snapshot);
        let asking = Asking::new(&now.snapshot, &now.program, &cluster.sandbox);
        cluster.sandbox.ensure_listening(&asking.listens()).map_err(|error| failed(self, &error))?;
        let questions = asking.questions(&mut Dice::new(self.seed << 32 | self.step as u64));
        let decisions: Vec<Decision> = questions.iter().map(|question| now.decide(question)).collect();
        let predictions: Vec<Prediction> = questions.iter().map(|question| now.predict(question)).collect();
        forget_translated(cluster).map_err(|error| self.told(&error, &now.snapshot))?;
        // What the last cluster's kernel told late is of no meaning for this one.
        cluster.denials().map_err(|error| failed(self, &error))?;
        self.listen_for(cluster, now, &questions)?;
        let probes: Vec<Probe> = questions.iter().map(probe).collect();
        let mut measured = cluster.sandbox.probe(&probes).map_err(|error| failed(self, &error))?;
        let told = cluster.denials().map_err(|error| failed(self, &error))?;
        for _ in 0..REPEATS {
            let lost = |at: &usize| measured[*at] == Measured::Silent && predictions[*at] == Prediction::Allow;
            let again: Vec<usize> = (0..questions.len()).filter(lost).collect();
            if again.is_empty() {
                break;
            }
            self.tally.repeated += again.len();
            let repeated: Vec<Probe> = again.iter().map(|&at| probes[at].clone()).collect();
            let results = cluster.sandbox.probe(&repeated).map_err(|error| failed(self, &error))?;
            again.into_iter().zip(results).for_each(|(at, result)| measured[at] = result);
        }
        for (at, question) in questions.iter().enumerate() {
            let is_right = match predictions[at] {
                Prediction::Allow => measured[at] == Measured::Open,
                Prediction::Deny => measured[at] == Measured::Silent,
                Prediction::Depends => matches!(measured[at], Measured::Open | Measured::Silent),
            };
            self.tally.depends += usize::from(predictions[at] == Prediction::Depends);
            if !is_right {
                let what = format!("{} is {} where the core says {}", text(question), measured[at], predictions[at]);
                return Err(self.why(&what, now, question));
            }
            self.tally.count(&now.program, &decisions[at]);
            if question.flow.hop.is_some() {
                self.tally.count_passed_on(&decisions[at]);
            }
            let without = evaluate(&now.program, &LeaseTable::default(), &question.flow, NOW);
            self.tally.leased += usize::from(without.verdict != decisions[at].verdict);
        }
        self.tally.clusters += 1;
        self.check_told(now, &questions, &told)
    }

    /// Some of what is denied, or would be, is tried by itself: the kernel must tell of it.
    fn listen_for(&mut self, cluster: &mut Cluster, now: &Now, questions: &[Question]) -> Result<(), String> {
        let failed = |this: &Self, error: &dyn std::error::Error| this.error(error, &now.snapshot);
        let audited = |question: &&Question| now.decide(question).would_deny.is_some();
        let denied = |question: &&Question| now.decide(question).verdict == Verdict::Deny;
        let direct = || questions.iter().filter(|question| question.flow.via.is_none());
        let mut waiting: Vec<&Question> = direct().filter(audited).step_by(7).take(LISTENED_FOR).collect();
        waiting.extend(direct().filter(denied).step_by(31).take(LISTENED_FOR));
        for repeat in 0..=REPEATS {
            if waiting.is_empty() {
                return Ok(());
            }
            if repeat > 0 {
                // A rule that stayed as it was may have told all it may of the last cluster's probes.
                thread::sleep(TOLD_AGAIN);
            }
            cluster.denials().map_err(|error| failed(self, &error))?;
            let probes: Vec<Probe> = waiting.iter().map(|question| probe(question)).collect();
            let before = std::mem::replace(&mut cluster.sandbox.timeout, TIMEOUT / 4);
            let measured = cluster.sandbox.probe(&probes);
            cluster.sandbox.timeout = before;
            measured.map_err(|error| failed(self, &error))?;
            let told = cluster.denials().map_err(|error| failed(self, &error))?;
            waiting
                .retain(|question| !told.iter().any(|told| is_about(told, question) && is_right(told, question, now)));
            self.tally.told += probes.len() - waiting.len();
        }
        match waiting.first() {
            Some(question) => Err(self.why(&format!("nothing was told of {}", text(question)), now, question)),
            None => Ok(()),
        }
    }

    /// Whatever the kernel tells of what was asked is so.
    fn check_told(&self, now: &Now, questions: &[Question], told: &[Denied]) -> Result<(), String> {
        for told in told {
            let about = |question: &&Question| question.flow.via.is_none() && is_about(told, question);
            // Of those through a Service the kernel may tell as if they were direct.
            let is_wrong = |question: &Question| !is_right(told, question, now);
            let through = questions.iter().any(|question| question.flow.via.is_some() && is_about(told, question));
            if let Some(question) = questions.iter().find(about).filter(|question| !through && is_wrong(question)) {
                return Err(self.why(&format!("the kernel told {told:?} of {}", text(question)), now, question));
            }
        }
        Ok(())
    }

    fn told(&self, what: &str, snapshot: &Snapshot) -> String {
        format!("cluster {}: {what}\n{}", self.step, print::cluster(snapshot, &self.world.leases))
    }

    fn why(&self, what: &str, now: &Now, question: &Question) -> String {
        let explanation = print::explanation(&now.snapshot, &now.program, &now.leases, &question.flow);
        self.told(&format!("{what}\n{explanation}"), &now.snapshot)
    }

    fn error(&self, error: &dyn std::error::Error, snapshot: &Snapshot) -> String {
        let mut what = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            what += &format!(": {error}");
            source = error.source();
        }
        self.told(&what, snapshot)
    }
}

/// As kube-proxy does when endpoints change: a UDP flow between the same ports would go on to a backend of the last
/// cluster. Behind source NAT many pods share one address, so ports come again soon.
fn forget_translated(cluster: &Cluster) -> Result<(), String> {
    for (_, node) in cluster.sandbox.nodes() {
        let forget = || {
            let mut conntrack = Conntrack::open()?;
            let flows = conntrack.list()?;
            let stale = flows.iter().filter(|flow| flow.protocol == Protocol::Udp && flow.asked != flow.destination);
            stale.into_iter().try_for_each(|flow| conntrack.delete(flow).map(drop))
        };
        let done = node.enter(forget).map_err(|error| error.to_string())?;
        done.map_err(|error: netlink::Error| error.to_string())?;
    }
    Ok(())
}

fn probe(question: &Question) -> Probe {
    Probe { from: question.from.clone(), to: question.asked, protocol: question.flow.protocol }
}

fn text(question: &Question) -> String {
    let (from, flow) = (question.from.source, &question.flow);
    format!("{from} -> {}/{} (asked at {})", address(flow.to.address), flow.protocol, question.asked)
}

fn address(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "nowhere".to_owned(), |address| address.to_string())
}

fn is_about(told: &Denied, question: &Question) -> bool {
    let flow = &question.flow;
    Some(told.source) == flow.from.address
        && Some(told.destination) == flow.to.address
        && (told.protocol, told.port) == (flow.protocol, flow.port)
}

/// Whether it is the reason the core has. Of what is only audited the kernel
/// may tell for both directions, and also where something else denies later.
fn is_right(told: &Denied, question: &Question, now: &Now) -> bool {
    let decision = now.decide(question);
    match (told.enforced, decision.would_deny) {
        (true, _) => is_reason(told, &decision.reason, &now.program),
        (false, Some(reason)) if reason_direction_is_told(told, &reason) => is_reason(told, &reason, &now.program),
        (false, Some(_)) => true,
        (false, None) => decision.verdict == Verdict::Deny,
    }
}

fn reason_direction_is_told(told: &Denied, reason: &Reason) -> bool {
    matches!(reason, Reason::Denied { stage, .. } if told.rule.contains(&format!(" {}", stage.direction())))
}

fn is_reason(told: &Denied, reason: &Reason, program: &Program) -> bool {
    let Reason::Denied { stage, cause } = reason else { return false };
    let direction = stage.direction();
    match cause {
        Cause::Rule(id) => {
            let rule = program.rule(*id);
            let policy = format!("{} {direction} rule", program.policy(rule.policy).id);
            let Some(numbers) = told.rule.strip_prefix(&policy) else { return false };
            let numbers = numbers.trim_start_matches('s').trim();
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            let within = |first: u32, last: u32| (first..=last).contains(&rule.index);
            first.parse().is_ok_and(|first| last.parse().is_ok_and(|last| within(first, last)))
        }
        _ => told.rule.starts_with(&format!("isolated for {direction}")),
    }
}
