//! What the controller does in turn.

use crate::applied::AppliedFirewalls;
use crate::exposure::{ToldServices, report};
use crate::firewalls::{Firewall, World};
use crate::parts::{is_full, missing_parts};
use crate::report::verdicts;
use crate::schedule::{Schedule, Tried};
use crate::wanted::{Whose, denied, has_rule_for, resolvers, wanted};
use jiff::Timestamp;
use namewall_cluster::kinds::{CLUSTER_EGRESS_FIREWALL, EGRESS_FIREWALL, Kind, NODE};
use namewall_cluster::resolver::{DeniedNames, Settings as ResolverSettings, object_name};
use namewall_cluster::{Key, Settings as ClusterSettings, no_dns_service};
use namewall_dns::lookup::{Done, LOOKUP_TIMEOUT, Lookups, NO_SUCH_NAME, Order};
use namewall_kubernetes::api::ApiError;
use namewall_kubernetes::{Environment, FirewallReport, NameObject, Outcome, Published, Publisher, Verdict, Watch};
use namewall_policy::{Instant, compile};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tracing::{error, info, warn};

/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How often the status of ClusterEgressFirewalls is written.
const WRITE_EVERY: Duration = Duration::from_secs(3);
/// How often it is looked which nodes enforce EgressFirewalls.
const ASK_NODES_EVERY: Duration = Duration::from_secs(1);
/// So many resolvers are asked for a name that has several addresses (S8.4).
const MOST_RESOLVERS: usize = 5;
const TIMEOUT: &str = "Timeout";
/// The name exists, and has no address.
const NO_ADDRESS: &str = "NoAddress";
/// A lookup that has not ended after this counts as failed, and is made again.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where its objects are.
    pub namespace: String,
    /// Other namespaces whose objects agents believe too. A name that has an object there gets none here.
    pub other_namespaces: Vec<String>,
    pub whose: Whose,
    /// Who is asked; without any the pods of `service`.
    pub resolvers: Vec<SocketAddr>,
    /// None: the usual one of the cluster.
    pub service: Option<Key>,
    pub resolver: ResolverSettings,
}

impl Settings {
    /// The namespaces whose objects it keeps up to date.
    fn namespaces(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.namespace).chain(&self.other_namespaces).map(String::as_str)
    }
}

/// What was done since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub created: u64,
    pub deleted: u64,
    pub lookups: u64,
    pub failures: u64,
    /// How late the latest of the last lookups was.
    pub lag: Duration,
    pub names: usize,
    /// Lookups that are under way or wait for their turn.
    pub lookups_waiting: u64,
    /// The DNS servers that can be asked; None before a name was due.
    pub servers: Option<usize>,
    pub leads: bool,
    pub statuses: Published,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    since: Instant,
    /// When its addresses are given more time because the lookup still waits for its turn.
    late_at: Instant,
}

#[derive(Debug)]
pub struct Controller {
    environment: Environment,
    watch: Watch,
    publisher: Publisher,
    settings: Settings,
    lookups: Box<dyn Lookups>,
    schedule: Schedule,
    objects: BTreeMap<Key, NameObject>,
    wanted: BTreeSet<String>,
    /// Names and wildcards of rules that deny.
    denied: BTreeSet<String>,
    /// When an answer last replaced all addresses of a denied name.
    answered: BTreeMap<String, Timestamp>,
    counts: Counts,
    /// Why names cannot be written now, as it was logged.
    blocked: Option<String>,
    /// True if the objects may differ from what is wanted. `again` is when to retry after a failure.
    is_dirty: bool,
    again: Option<Instant>,
    led: bool,
    turned: usize,
    /// Names that are being looked up.
    under_way: BTreeMap<String, UnderWay>,
    /// What was said of policies, and whether they have changed since.
    said: BTreeMap<(&'static Kind, Key), Verdict>,
    /// What is to be said of them, without what nodes say.
    verdicts: BTreeMap<(&'static Kind, Key), Verdict>,
    applied: AppliedFirewalls,
    has_new_policies: bool,
    report_again: Instant,
    ask_nodes_at: Instant,
    /// The ClusterEgressFirewalls, whether the cluster has changed since they were looked at, and when they may be
    /// looked at again: that costs as much as to enforce them.
    firewalls: BTreeMap<Key, Firewall>,
    has_changed: bool,
    write_again: Instant,
    /// The statuses that were written, and the Services that Events were written about.
    written: BTreeMap<Key, FirewallReport>,
    told: BTreeMap<Key, ToldServices>,
}

impl Controller {
    /// Of a cluster that is known as a whole. DNS is not part of the environment: only the controller asks it.
    pub fn new(environment: Environment, watch: Watch, lookups: Box<dyn Lookups>, settings: Settings) -> Self {
        let now = environment.clock.now();
        Self {
            publisher: watch.publisher(settings.resolver).within(settings.namespaces().map(str::to_owned).collect()),
            environment,
            watch,
            lookups,
            schedule: Schedule::new(settings.resolver.grace),
            objects: BTreeMap::new(),
            wanted: BTreeSet::new(),
            denied: BTreeSet::new(),
            answered: BTreeMap::new(),
            counts: Counts::default(),
            blocked: None,
            is_dirty: true,
            again: None,
            led: false,
            turned: 0,
            under_way: BTreeMap::new(),
            said: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            applied: AppliedFirewalls::default(),
            has_new_policies: true,
            report_again: now,
            ask_nodes_at: now,
            firewalls: BTreeMap::new(),
            has_changed: true,
            write_again: now,
            written: BTreeMap::new(),
            told: BTreeMap::new(),
            settings,
        }
    }

    pub fn counts(&self) -> Counts {
        let (names, statuses) = (self.schedule.len(), self.publisher.counts());
        Counts { names, leads: self.led, statuses, ..self.counts }
    }

    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Does what there is to do. Only a leader changes anything.
    pub async fn turn(&mut self, leads: bool) {
        let wall = self.environment.clock.wall();
        self.take_changes(wall);
        self.follow_leadership(leads);
        if !leads {
            return;
        }
        if self.is_dirty || self.again.is_some_and(|at| self.now() >= at) {
            self.reconcile().await;
        }
        self.report().await;
        self.write_firewalls().await;
        self.look_up(wall);
        for key in self.schedule.take_prunes(wall) {
            self.publisher.prune(&key, self.denied_names(&key));
        }
        self.log_blocked();
    }

    fn log_blocked(&mut self) {
        let blocked = self.publisher.blocked();
        match (self.blocked.is_some(), &blocked) {
            (false, Some(why)) => error!("what was looked up does not reach the nodes: {why}"),
            (true, None) => info!("what was looked up reaches the nodes again"),
            _ => {}
        }
        self.blocked = blocked;
    }

    fn now(&self) -> Instant {
        self.environment.clock.now()
    }

    /// Takes what the watch has seen.
    fn take_changes(&mut self, now: Timestamp) {
        // Objects of namespaces that are not named are neither believed nor kept.
        let mut changed = self.watch.new_names();
        changed.retain(|(key, _)| self.settings.namespaces().any(|namespace| *key.namespace == *namespace));
        for (key, mut object) in changed {
            if let Some(object) = object.as_mut().filter(|_| *key.namespace != *self.settings.namespace) {
                object.is_ours = false;
            }
            self.schedule.put(&key, object.as_ref(), now);
            // What there is does not change with what is known of it, which it does all the time.
            let what = |object: &NameObject| (object.pattern.clone(), object.is_ours);
            let is = object.as_ref().map(what);
            let was_full = self.objects.get(&key).is_some_and(is_full);
            self.is_dirty |= !was_full && object.as_ref().is_some_and(is_full);
            let was = match object {
                Some(object) => self.objects.insert(key, object),
                None => self.objects.remove(&key),
            };
            self.is_dirty |= was.as_ref().map(what) != is;
        }
        if self.watch.take_change() {
            self.has_changed = true;
            let wanted = self.watch.with_store(|store| wanted(store, self.settings.whose));
            self.is_dirty |= wanted != self.wanted;
            self.wanted = wanted;
            self.denied = self.watch.with_store(denied);
            let denied = &self.denied;
            self.answered.retain(|name, _| has_rule_for(denied, name));
        }
        self.has_new_policies |= self.watch.take_policy_change();
    }

    /// True if a rule denies the name, or the wildcard over it.
    fn is_denied(&self, name: &str) -> bool {
        has_rule_for(&self.denied, name)
    }

    /// True if there is an object for exactly this name, and none that knows an address of it.
    fn is_unknown(&self, name: &str) -> bool {
        // Nearly always the object has the name that is computed first.
        let key = |namespace: &str| Key { namespace: namespace.into(), name: object_name(name, 0).into() };
        let there = self.settings.namespaces().filter_map(|namespace| self.objects.get(&key(namespace)));
        let usual = there.into_iter().find(|object| object.pattern == name);
        let others = self.objects.values().filter(|object| usual.is_none() && object.pattern == name);
        let mut objects = usual.into_iter().chain(others).peekable();
        let knows = |object: &NameObject| {
            let own = object.status.resolved_names.iter().filter(|item| item.dns_name == name);
            own.flat_map(|item| &item.resolved_addresses).next().is_some()
        };
        objects.peek().is_some() && !objects.any(knows)
    }

    /// The denied names of an object.
    fn denied_names(&self, key: &Key) -> DeniedNames {
        let items = self.objects.get(key).into_iter().flat_map(|object| &object.status.resolved_names);
        let names = items.map(|item| &item.dns_name).filter(|name| self.is_denied(name));
        DeniedNames(names.map(|name| (name.clone(), self.answered.get(name).copied())).collect())
    }

    fn follow_leadership(&mut self, leads: bool) {
        if leads == self.led {
            return;
        }
        self.led = leads;
        self.is_dirty = true;
        // The leader before may have stopped halfway through its changes.
        self.said.clear();
        self.written.clear();
        self.told.clear();
        (self.has_new_policies, self.has_changed) = (true, true);
        info!("{}", if leads { "leading" } else { "another leads" });
    }

    /// One object a name, more for a wildcard with many names, and none that nobody wants (S8.2).
    async fn reconcile(&mut self) {
        (self.is_dirty, self.again) = (false, None);
        let there: BTreeSet<&String> = self.objects.values().map(|object| &object.pattern).collect();
        let missing: Vec<String> = self.wanted.iter().filter(|name| !there.contains(name)).cloned().collect();
        let (ours, others): (Vec<_>, Vec<_>) = self.objects.values().partition(|object| object.is_ours);
        let of_others: BTreeSet<&String> = others.into_iter().map(|object| &object.pattern).collect();
        let is_wanted = |name: &String| self.wanted.contains(name) && !of_others.contains(name);
        let unwanted = ours.into_iter().filter(|object| !is_wanted(&object.pattern));
        let unwanted: Vec<Key> = unwanted.map(|object| object.key.clone()).collect();
        let mut parts = missing_parts(&self.objects);
        parts.retain(|(_, wildcard)| is_wanted(wildcard));
        let (created, deleted) = (missing.len() + parts.len(), unwanted.len());
        let mut not_made = self.environment.create_names(&self.settings.namespace, missing).await;
        not_made.extend(self.environment.create_parts(&self.settings.namespace, parts).await);
        let not_gone = self.environment.delete_names(unwanted).await;
        self.counts.created += (created - not_made.len()) as u64;
        self.counts.deleted += (deleted - not_gone.len()) as u64;
        if let Some((name, error)) = not_made.first() {
            warn!(name, %error, count = not_made.len(), "cannot make the DNSNameResolver of a name");
        }
        if let Some((key, error)) = not_gone.first() {
            warn!(name = &*key.name, %error, count = not_gone.len(), "cannot delete a DNSNameResolver");
        }
        if !(not_made.is_empty() && not_gone.is_empty()) {
            self.again = Some(self.now() + AGAIN);
        }
    }

    /// Says of each policy whether it counts and which nodes enforce it, if that was not said yet.
    async fn report(&mut self) {
        let now = self.now();
        let is_new = self.has_new_policies && now >= self.report_again;
        let asks_nodes = now >= self.ask_nodes_at && self.watch.with_store(|store| store.has(&EGRESS_FIREWALL));
        if !is_new && !asks_nodes {
            return;
        }
        self.has_new_policies &= !is_new;
        self.ask_nodes_at = now + ASK_NODES_EVERY;
        if is_new {
            self.verdicts = self.watch.with_store(verdicts);
        }
        let mut verdicts = self.verdicts.clone();
        self.add_nodes(&mut verdicts);
        let is_news = |(policy, verdict): &(&(&'static Kind, Key), &Verdict)| self.said.get(policy) != Some(verdict);
        let news = verdicts.iter().filter(is_news).map(|((_, key), verdict)| (key.clone(), verdict.clone())).collect();
        let not_said = self.environment.report(news).await;
        for (key, _) in &not_said {
            verdicts.retain(|(_, known), _| known != key);
        }
        self.said = verdicts;
        let Some((key, error)) = not_said.first() else { return };
        self.has_new_policies |= is_new;
        self.report_again = self.now() + AGAIN;
        self.ask_nodes_at = self.report_again;
        warn!(policy = &*key.name, %error, count = not_said.len(), "cannot say whether a policy counts");
    }

    /// Adds what nodes say of EgressFirewalls.
    fn add_nodes(&mut self, verdicts: &mut BTreeMap<(&'static Kind, Key), Verdict>) {
        let enforced = self.watch.enforced_egress_firewalls();
        let applied = &mut self.applied;
        self.watch.with_store(|store| {
            applied.follow(store);
            applied.take(&enforced, &store.keys(&NODE).map(|key| key.name.clone()).collect());
        });
        for ((kind, key), verdict) in verdicts {
            if **kind == EGRESS_FIREWALL {
                verdict.nodes = applied.report(key);
            }
        }
    }

    /// Writes what became of ClusterEgressFirewalls (S7.5), where it is something else than before.
    async fn write_firewalls(&mut self) {
        let has_any = self.watch.with_store(|store| store.has(&CLUSTER_EGRESS_FIREWALL));
        if !has_any || self.now() < self.write_again {
            return;
        }
        self.write_again = self.now() + WRITE_EVERY;
        if std::mem::take(&mut self.has_changed) {
            self.firewalls = self.look_at_firewalls();
        }
        let digest = self.watch.with_store(|store| store.digest(&CLUSTER_EGRESS_FIREWALL));
        let enforcing = self.watch.enforcing(&digest);
        // Before the status is written: the old one lists the Services that the last leader wrote Events about.
        let mut failed = self.tell_of_services().await;
        let reports = self.firewalls.iter().map(|(key, firewall)| (key.clone(), report(firewall, &enforcing)));
        let mut reports: BTreeMap<Key, FirewallReport> = reports.collect();
        let is_news = |(key, report): &(&Key, &FirewallReport)| self.written.get(*key) != Some(report);
        let news = reports.iter().filter(is_news).map(|(key, report)| (key.clone(), report.clone())).collect();
        let not_written = self.environment.write_firewalls(news).await;
        not_written.iter().for_each(|(key, _)| _ = reports.remove(key));
        self.written = reports;
        failed.extend(not_written);
        let Some((key, error)) = failed.first() else { return };
        self.write_again = self.now() + AGAIN;
        warn!(name = &*key.name, %error, count = failed.len(), "cannot write the status of a ClusterEgressFirewall");
    }

    /// Events for Services that point at what a firewall denies, and for those that no longer do.
    async fn tell_of_services(&mut self) -> Vec<(Key, ApiError)> {
        let mut failed = Vec::new();
        let now = self.now();
        self.told.retain(|key, _| self.firewalls.contains_key(key));
        for (key, firewall) in &self.firewalls {
            if !self.told.contains_key(key) {
                match self.environment.offending_services(key).await {
                    Ok(services) => _ = self.told.insert(key.clone(), ToldServices::new(services)),
                    Err(error) => {
                        failed.push((key.clone(), error));
                        continue;
                    }
                }
            }
            let Some(told) = self.told.get_mut(key) else { continue };
            let before = told.clone();
            for notice in told.take_news(&firewall.status.offending_services, now) {
                if let Err(error) = self.environment.tell_of_firewall(key, notice).await {
                    // Both are said again later; the API server knows which was said.
                    told.clone_from(&before);
                    failed.push((key.clone(), error));
                    break;
                }
            }
        }
        failed
    }

    fn look_at_firewalls(&self) -> BTreeMap<Key, Firewall> {
        let snapshot = self.watch.look(&ClusterSettings::default()).lowered.snapshot;
        let (program, _) = compile(&snapshot);
        let names: Vec<NameObject> = self.objects.values().cloned().collect();
        self.watch.with_store(|store| {
            let nodes = store.of(&NODE).map(|(key, _)| key.name.clone()).collect();
            let world = World { snapshot: &snapshot, program: &program, names: &names, nodes: &nodes };
            world.firewalls(store.of(&CLUSTER_EGRESS_FIREWALL))
        })
    }

    fn look_up(&mut self, wall: Timestamp) {
        self.take_results(wall);
        self.keep_those_that_wait(wall);
        let due = self.schedule.take_due(wall);
        if due.is_empty() {
            return;
        }
        let servers = match self.settings.resolvers.is_empty() {
            false => self.settings.resolvers.clone(),
            true => {
                let named = self.settings.service.as_ref();
                self.watch.with_store(|store| resolvers(store, named))
            }
        };
        self.note_servers(servers.len());
        self.counts.lag = Duration::ZERO;
        for one in due {
            // Late is what was due and known before.
            let late = if one.addresses == 0 { Duration::ZERO } else { until(one.since, wall) };
            self.counts.lag = self.counts.lag.max(late);
            if self.under_way.contains_key(&one.name) {
                continue;
            }
            let count = if one.addresses > 1 { MOST_RESOLVERS } else { 1 };
            // Another server begins each time, so that none is asked for all names.
            self.turned = self.turned.wrapping_add(1);
            let first = self.turned.checked_rem(servers.len()).unwrap_or(0);
            let mut turned = servers.iter().cycle().skip(first).take(servers.len()).copied();
            let asked = turned.by_ref().take(count).collect();
            let order = Order { name: one.name.clone(), servers: asked, spare: turned.take(count).collect() };
            let since = self.now();
            self.under_way.insert(one.name, UnderWay { since, late_at: since + LOOKUP_TIMEOUT });
            self.lookups.order(order);
        }
        self.counts.lookups_waiting = self.under_way.len() as u64;
    }

    /// Says loudly if there is nobody to ask.
    fn note_servers(&mut self, count: usize) {
        let had_any = self.counts.servers != Some(0);
        self.counts.servers = Some(count);
        if count == 0 && had_any {
            let finding = no_dns_service(self.settings.service.as_ref(), "no name is looked up");
            error!(code = finding.code, "{}, or name servers with --resolver", finding.message);
        } else if count > 0 && !had_any {
            info!(count, "there are DNS servers to ask again");
        }
    }

    /// Takes the results of lookups that have ended.
    fn take_results(&mut self, wall: Timestamp) {
        for done in self.lookups.take_done() {
            self.under_way.remove(&done.name);
            self.take_result(done, wall);
        }
        self.counts.lookups_waiting = self.under_way.len() as u64;
    }

    fn take_result(&mut self, done: Done, wall: Timestamp) {
        let is_denied = self.is_denied(&done.name);
        if is_denied && done.replacement().is_some() {
            self.answered.insert(done.name.clone(), wall);
        }
        let Done { name, found, .. } = done;
        let is_unknown = found.as_ref().is_ok_and(Vec::is_empty) || found.is_err();
        let is_unknown = is_unknown && self.is_unknown(&name);
        // A name that exists and has no address changes nothing, unless no address was ever known or a rule denies it:
        // then its addresses stay (S8.7).
        let (how, outcome) = match found {
            Ok(addresses) if addresses.is_empty() && (is_denied || is_unknown) => {
                (Tried::NoAddress, Some(Outcome::Failed(NO_ADDRESS.to_owned())))
            }
            Ok(addresses) if addresses.is_empty() => (Tried::NoAddress, None),
            Ok(addresses) => (Tried::Found, Some(Outcome::Found(addresses))),
            Err(why) if why == NO_SUCH_NAME => (Tried::NoAddress, Some(Outcome::Failed(why))),
            Err(why) => (Tried::Trouble, Some(Outcome::Failed(why))),
        };
        self.counts.lookups += 1;
        self.counts.failures += u64::from(matches!(outcome, Some(Outcome::Failed(_))));
        self.schedule.tried(&name, how, wall);
        let outcome = match outcome {
            Some(Outcome::Failed(why)) if is_unknown => Some(Outcome::Unresolved(why)),
            Some(Outcome::Failed(why)) if is_denied => Some(Outcome::Kept(why)),
            other => other,
        };
        if let Some(outcome) = outcome {
            self.publisher.note(&name, &outcome);
        }
    }

    /// A name whose lookup waits for its turn keeps its addresses: no DNS server has said that they are wrong (S8.7).
    /// A lookup that does not end counts as failed: no address stays open without an end.
    fn keep_those_that_wait(&mut self, wall: Timestamp) {
        let now = self.now();
        let has_ended = |lookup: &UnderWay| now.since(lookup.since) >= LONGEST_WAIT;
        let ended = self.under_way.iter().filter(|(_, lookup)| has_ended(lookup));
        for name in ended.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.under_way.remove(&name);
            self.take_result(Done::failed(name, TIMEOUT), wall);
        }
        // Not shortly before it counts as failed: the addresses have ended by then, and go if it failed too often.
        let may_wait = |lookup: &UnderWay| now.since(lookup.since) + 2 * LOOKUP_TIMEOUT <= LONGEST_WAIT;
        for (name, lookup) in &mut self.under_way {
            if now >= lookup.late_at && may_wait(lookup) {
                lookup.late_at = now + LOOKUP_TIMEOUT;
                self.publisher.note(name, &Outcome::Postponed);
            }
        }
    }
}

fn until(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
