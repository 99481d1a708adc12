//! What the controller does in turn.

use crate::firewalls::World;
use crate::lookup::{Done, Lookups, Order};
use crate::report::verdicts;
use crate::schedule::Schedule;
use crate::wanted::{Whose, resolvers, wanted};
use jiff::Timestamp;
use namewall_cluster::kinds::cluster_egress_firewall::ClusterEgressFirewallStatus;
use namewall_cluster::kinds::{CLUSTER_EGRESS_FIREWALL, Kind};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_cluster::{Key, Settings as ClusterSettings};
use namewall_kubernetes::{Connection, Leadership, NameObject, Outcome, Published, Publisher, Verdict, Watch};
use namewall_policy::compile;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a turn waits for something to do.
const TURN: Duration = Duration::from_millis(100);
/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How often it is looked at what became of ClusterEgressFirewalls.
const WRITE_EVERY: Duration = Duration::from_secs(3);
/// So many resolvers are asked for a name that has several addresses (S8.4).
const MOST_RESOLVERS: usize = 5;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where its objects are.
    pub namespace: String,
    pub whose: Whose,
    /// Who is asked; without any the pods of `service`.
    pub resolvers: Vec<SocketAddr>,
    /// Namespace and name.
    pub service: (String, String),
    pub resolver: ResolverSettings,
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
    pub leads: bool,
    pub statuses: Published,
}

#[derive(Debug)]
pub struct Controller {
    connection: Connection,
    watch: Watch,
    publisher: Publisher,
    settings: Settings,
    lookups: Lookups,
    schedule: Schedule,
    objects: BTreeMap<Key, NameObject>,
    wanted: BTreeSet<String>,
    counts: Counts,
    /// Whether what there is may not be what is wanted; when to look again where it could not be made so.
    is_dirty: bool,
    again: Option<Instant>,
    led: bool,
    turned: usize,
    /// What was said of policies, and whether they have changed since.
    said: HashMap<(&'static Kind, Key), Verdict>,
    has_new_policies: bool,
    report_again: Instant,
    /// What was written of ClusterEgressFirewalls, whether the cluster has changed since, and when it may be
    /// looked at again: that costs as much as to enforce it.
    written: HashMap<Key, ClusterEgressFirewallStatus>,
    has_changed: bool,
    write_again: Instant,
}

impl Controller {
    /// Of a cluster that is known as a whole.
    pub fn new(connection: &Connection, watch: Watch, settings: Settings) -> io::Result<Self> {
        Ok(Self {
            connection: connection.clone(),
            publisher: watch.publisher(settings.resolver).within(vec![settings.namespace.clone()]),
            watch,
            lookups: Lookups::start()?,
            schedule: Schedule::new(settings.resolver.grace),
            objects: BTreeMap::new(),
            wanted: BTreeSet::new(),
            counts: Counts::default(),
            is_dirty: true,
            again: None,
            led: false,
            turned: 0,
            said: HashMap::new(),
            has_new_policies: true,
            report_again: Instant::now(),
            written: HashMap::new(),
            has_changed: true,
            write_again: Instant::now(),
            settings,
        })
    }

    pub fn counts(&self) -> Counts {
        let (names, statuses) = (self.schedule.len(), self.publisher.counts());
        Counts { names, leads: self.led, statuses, ..self.counts }
    }

    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Does what there is to do; gives what a user should hear of.
    pub fn turn(&mut self, leadership: &Leadership) -> Vec<String> {
        self.watch.wait(TURN);
        let now = Timestamp::now();
        // Another's objects are nobody's to believe here, nor ours to keep.
        let mut changed = self.watch.new_names();
        changed.retain(|(key, _)| *key.namespace == *self.settings.namespace);
        for (key, object) in changed {
            self.schedule.put(&key, object.as_ref(), now);
            // What there is does not change with what is known of it, which it does all the time.
            let what = |object: &NameObject| (object.pattern.clone(), object.is_ours);
            let is = object.as_ref().map(what);
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
        }
        self.has_new_policies |= self.watch.take_policy_change();
        let leads = leadership.is_held();
        let mut said = Vec::new();
        if leads != self.led {
            self.led = leads;
            self.is_dirty = true;
            // Whoever led before may have ended in the midst of it.
            self.said.clear();
            self.written.clear();
            (self.has_new_policies, self.has_changed) = (true, true);
            said.push(if leads { "leading" } else { "another leads" }.to_owned());
        }
        if !leads {
            return said;
        }
        if self.is_dirty || self.again.is_some_and(|at| Instant::now() >= at) {
            said.extend(self.reconcile());
        }
        if self.has_new_policies && Instant::now() >= self.report_again {
            self.has_new_policies = false;
            said.extend(self.report());
        }
        said.extend(self.write_firewalls());
        self.look_up(now);
        for key in self.schedule.take_prunes(now) {
            self.publisher.prune(&key);
        }
        said
    }

    /// One object a name, and none that nobody wants (S8.2).
    fn reconcile(&mut self) -> Vec<String> {
        (self.is_dirty, self.again) = (false, None);
        let there: BTreeSet<&String> = self.objects.values().map(|object| &object.pattern).collect();
        let missing: Vec<String> = self.wanted.iter().filter(|name| !there.contains(name)).cloned().collect();
        let ours = self.objects.values().filter(|object| object.is_ours);
        let unwanted = ours.filter(|object| !self.wanted.contains(&object.pattern));
        let unwanted: Vec<Key> = unwanted.map(|object| object.key.clone()).collect();
        let (created, deleted) = (missing.len(), unwanted.len());
        let not_made = self.connection.create_names(&self.settings.namespace, missing);
        let not_gone = self.connection.delete_names(unwanted);
        self.counts.created += (created - not_made.len()) as u64;
        self.counts.deleted += (deleted - not_gone.len()) as u64;
        let mut said = Vec::new();
        if let Some((name, why)) = not_made.first() {
            said.push(format!("cannot make the DNSNameResolver of {name}: {why} ({} such)", not_made.len()));
        }
        if let Some((key, why)) = not_gone.first() {
            said.push(format!("cannot delete DNSNameResolver {}: {why} ({} such)", key.name, not_gone.len()));
        }
        if !said.is_empty() {
            self.again = Some(Instant::now() + AGAIN);
        }
        said
    }

    /// Says of each policy whether it counts, if that was not said yet.
    fn report(&mut self) -> Vec<String> {
        let mut verdicts = self.watch.with_store(verdicts);
        let is_news = |(policy, verdict): &(&(&'static Kind, Key), &Verdict)| self.said.get(policy) != Some(verdict);
        let news = verdicts.iter().filter(is_news).map(|((_, key), verdict)| (key.clone(), verdict.clone())).collect();
        let not_said = self.connection.report(news);
        for (key, _) in &not_said {
            verdicts.retain(|(_, known), _| known != key);
        }
        self.said = verdicts;
        let Some((key, why)) = not_said.first() else { return Vec::new() };
        self.has_new_policies = true;
        self.report_again = Instant::now() + AGAIN;
        vec![format!("cannot say whether {} counts: {why} ({} such)", key.name, not_said.len())]
    }

    /// Writes what became of ClusterEgressFirewalls (S7.5), where it is something else than before.
    fn write_firewalls(&mut self) -> Vec<String> {
        let has_any = self.watch.with_store(|store| store.has(&CLUSTER_EGRESS_FIREWALL));
        if !has_any || Instant::now() < self.write_again {
            return Vec::new();
        }
        self.write_again = Instant::now() + WRITE_EVERY;
        let mut statuses = match std::mem::take(&mut self.has_changed) {
            true => self.statuses(),
            false => self.written.clone(),
        };
        let digest = self.watch.with_store(|store| store.digest(&CLUSTER_EGRESS_FIREWALL));
        let (enforcing, _) = self.watch.enforcing(&digest);
        for status in statuses.values_mut() {
            status.enforcing_nodes = i32::try_from(enforcing).ok();
        }
        let is_news = |(key, status): &(&Key, &ClusterEgressFirewallStatus)| self.written.get(*key) != Some(status);
        let news = statuses.iter().filter(is_news).map(|(key, status)| (key.clone(), status.clone())).collect();
        let not_written = self.connection.write_statuses(news);
        not_written.iter().for_each(|(key, _)| _ = statuses.remove(key));
        self.written = statuses;
        let Some((key, why)) = not_written.first() else { return Vec::new() };
        self.has_changed = true;
        self.write_again = Instant::now() + AGAIN;
        vec![format!("cannot write the status of {}: {why} ({} such)", key.name, not_written.len())]
    }

    fn statuses(&mut self) -> HashMap<Key, ClusterEgressFirewallStatus> {
        let snapshot = self.watch.look(&ClusterSettings::default()).lowered.snapshot;
        let (program, _) = compile(&snapshot);
        let names: Vec<NameObject> = self.objects.values().cloned().collect();
        let world = World { snapshot: &snapshot, program: &program, names: &names };
        self.watch.with_store(|store| world.statuses(store.of(&CLUSTER_EGRESS_FIREWALL))).into_iter().collect()
    }

    fn look_up(&mut self, now: Timestamp) {
        for Done { name, outcome } in self.lookups.done() {
            self.counts.lookups += 1;
            self.counts.lookups_waiting = self.counts.lookups_waiting.saturating_sub(1);
            self.counts.failures += u64::from(matches!(outcome, Some(Outcome::Failed(_))));
            self.schedule.tried(&name, matches!(outcome, Some(Outcome::Found(_))), now);
            if let Some(outcome) = outcome {
                self.publisher.note(&name, &outcome);
            }
        }
        let due = self.schedule.take_due(now);
        if due.is_empty() {
            return;
        }
        let servers = match self.settings.resolvers.is_empty() {
            false => self.settings.resolvers.clone(),
            true => {
                let (namespace, name) = &self.settings.service;
                self.watch.with_store(|store| resolvers(store, (namespace, name)))
            }
        };
        self.counts.lag = Duration::ZERO;
        for one in due {
            // Late is what was due and known before.
            let late = if one.addresses == 0 { Duration::ZERO } else { until(one.since, now) };
            self.counts.lag = self.counts.lag.max(late);
            let count = if one.addresses > 1 { MOST_RESOLVERS.min(servers.len()) } else { 1 };
            // Another begins each time, so that none is asked for all.
            self.turned = self.turned.wrapping_add(1);
            let first = self.turned.checked_rem(servers.len()).unwrap_or(0);
            let turned = servers.iter().cycle().skip(first).take(count.min(servers.len()));
            self.counts.lookups_waiting += 1;
            self.lookups.order(Order { name: one.name, servers: turned.copied().collect() });
        }
    }
}

fn until(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or(Duration::ZERO)
}
