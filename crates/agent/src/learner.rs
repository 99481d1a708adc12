//! From DNS answers to leases.

use crate::counters::{Counters, Counting};
use crate::enforcer::Enforcer;
use crate::history::{self, LeaseKey, LeaseRecord, Origin, Origins, Records};
use crate::memo::{AnswerKey, Entry, Known, Memo, State};
use crate::name_rules::NameRules;
use crate::recent::{self, Recall, Recalled, Recent};
use crate::share::{Heard, Share};
use arc_swap::{ArcSwap, ArcSwapOption};
use namewall_dataplane::Dataplane;
use namewall_dataplane::nft::Nft;
use namewall_dns::wire::Addresses;
use namewall_dns::{Answer, Learn, LearnError, Opens};
use namewall_policy::bits::BitSet;
use namewall_policy::domain::{DomainName, DomainPattern, RulePattern};
use namewall_policy::lease::{LeaseRef, Lifetimes, Refusal, Walk};
use namewall_policy::{Instant, Lease};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tracing::warn;

/// How names are learned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Learning {
    pub lifetimes: Lifetimes,
    /// True if a rule also opens addresses of a name that a CNAME leads through (S6.2).
    pub aliases: bool,
    /// For tests: how much longer the kernel takes.
    pub slow_kernel: Duration,
}

/// Learns from DNS answers which addresses the names of rules open, and opens them.
#[derive(Debug)]
pub struct Learner<D = Nft> {
    enforcer: Arc<Enforcer<D>>,
    settings: ArcSwap<Learning>,
    /// Swapped as a whole: who reads them waits for nobody.
    rules: ArcSwapOption<NameRules>,
    /// How often the rules have changed.
    rule_changes: AtomicU64,
    /// How often a lease was lost.
    losses: Arc<AtomicU64>,
    memo: Memo,
    /// Answers that no rule speaks of, yet.
    recent: Recent,
    /// Which answers opened the leases.
    origins: Origins,
    counting: Counting,
    /// Leases that were not stored last, for want of room.
    not_stored: AtomicUsize,
    /// Threads that open what answers say, or wait to.
    commits: AtomicUsize,
    refused: Mutex<Vec<Refused>>,
    share: OnceLock<Arc<dyn Share>>,
}

/// An address that an answer gave, and that is never leased (S6.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    pub client: IpAddr,
    pub name: DomainName,
    pub address: IpAddr,
    pub why: Refusal,
}

/// Up to this many refusals are kept until they are logged; all are counted.
const MOST_REFUSED: usize = 64;
/// Names of leases that are visited while the leases are locked.
const NAMES_IN_A_PART: usize = 4_096;

impl<D: Dataplane> Learner<D> {
    pub(crate) fn new(enforcer: Arc<Enforcer<D>>, settings: Learning) -> Self {
        let losses = enforcer.leases().table().loss_counter();
        Self {
            enforcer,
            settings: ArcSwap::from_pointee(settings),
            rules: ArcSwapOption::empty(),
            rule_changes: AtomicU64::new(0),
            losses,
            memo: Memo::new(),
            recent: Recent::default(),
            origins: Origins::default(),
            counting: Counting::default(),
            not_stored: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            refused: Mutex::default(),
            share: OnceLock::new(),
        }
    }

    /// Publishes what is learned from now on. Only the first call counts.
    pub fn share_with(&self, share: Arc<dyn Share>) {
        let _ = self.share.set(share);
    }

    /// Leases what other nodes have learned, for every rule with a pattern of the name. Rules that allow the name get no
    /// addresses that are never leased. Returns how many leases were not there yet.
    pub fn hear(&self, heard: &[Heard]) -> Result<usize, LearnError> {
        let mut opened = 0;
        loop {
            let rule_changes = self.rule_changes.load(Ordering::SeqCst);
            opened += self.hear_now(heard)?;
            // Rules that came meanwhile have not seen it.
            if self.rule_changes.load(Ordering::SeqCst) == rule_changes {
                return Ok(opened);
            }
        }
    }

    fn hear_now(&self, heard: &[Heard]) -> Result<usize, LearnError> {
        let Some(rules) = self.rules() else { return Ok(0) };
        let (lifetimes, now) = (self.settings().lifetimes, self.enforcer.now());
        let mut batch = Vec::new();
        for Heard { name, address, left } in heard {
            let expiry = lifetimes.expiry(*left, now);
            for pattern in rules.all_matching(name) {
                let (pattern, name) = (pattern.clone(), name.clone());
                batch.push(Lease { pattern, name, address: *address, expiry, asked_by: None });
            }
        }
        batch.retain(|lease| rules.refusal_of(lease).is_none());
        let leases = self.enforcer.leases();
        batch.retain(|lease| !leases.is_open(lease, lease.expiry));
        drop(leases);
        if !batch.is_empty() {
            self.enforcer.grant_first(&batch).map_err(|error| self.failed(error))?;
        }
        Ok(batch.len())
    }

    /// True if this node renews the name while nobody publishes it.
    pub fn renews(&self, name: &DomainName) -> bool {
        self.rules().is_some_and(|rules| rules.renews(name))
    }

    /// How long a lease outlives its TTL.
    pub fn grace(&self) -> Duration {
        self.settings().lifetimes.grace
    }

    /// The leases of patterns that a rule denies, and that end within this time or have ended.
    pub fn ending_denials(&self, within: Duration) -> Vec<Lease> {
        let Some(rules) = self.rules() else { return Vec::new() };
        if !rules.deny_names() {
            return Vec::new();
        }
        self.enforcer.leases().table().ending(self.enforcer.now() + within, RulePattern::denies)
    }

    /// The leases of some patterns that rules allow, and that end within this time.
    pub fn ending_answers(&self, within: Duration, wanted: &dyn Fn(&DomainPattern) -> bool) -> Vec<Lease> {
        let now = self.enforcer.now();
        let is_wanted = |pattern: &RulePattern| !pattern.denies() && wanted(&pattern.names);
        let mut ending = self.enforcer.leases().table().ending(now + within, is_wanted);
        ending.retain(|lease| lease.expiry > now);
        ending
    }

    /// Publishes what lookups of this node have found, of names that clients have asked for.
    pub fn publish(&self, found: &[(Option<IpAddr>, Heard)]) {
        let Some(share) = self.share.get() else { return };
        for same in found.chunk_by(|(_, one), (_, next)| one.name == next.name) {
            let addresses: Vec<_> = same.iter().map(|(_, one)| (one.address, one.left)).collect();
            let (asked_by, first) = &same[0];
            share.note(*asked_by, &first.name, &addresses);
        }
    }

    /// Grants leases again until they expire.
    pub fn keep(&self, leases: &[Lease]) -> Result<(), LearnError> {
        if leases.is_empty() {
            return Ok(());
        }
        self.enforcer.grant_first(leases).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: D::Error) -> LearnError {
        self.counting.add(|all| &all.failed, 1);
        LearnError(Box::new(error))
    }

    /// Learns for these rules from now on.
    pub(crate) fn take(&self, rules: Arc<NameRules>) {
        self.rules.store(Some(rules));
        self.rule_changes.fetch_add(1, Ordering::SeqCst);
    }

    pub fn set(&self, settings: Learning) {
        self.settings.store(Arc::new(settings));
    }

    /// Addresses that were refused since the last call, each once.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn refuse(&self, refused: Refused) {
        self.counting.refuse(refused.why);
        let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_REFUSED && !all.contains(&refused) {
            all.push(refused);
        }
    }

    /// How many answers that no rule spoke of were forgotten to make room for others.
    pub(crate) fn forgotten_answers(&self) -> u64 {
        self.recent.forgotten()
    }

    /// How many origins of leases were forgotten to make room for others.
    pub(crate) fn forgotten_origins(&self) -> u64 {
        self.origins.forgotten()
    }

    /// How many leases were not stored last, for want of room.
    pub(crate) fn leases_not_stored(&self) -> usize {
        self.not_stored.load(Ordering::Relaxed)
    }

    /// The answer that opened a lease, if it is known.
    pub(crate) fn origin(&self, lease: &Lease) -> Option<Arc<Origin>> {
        self.origins.get(&LeaseKey { name: lease.name.clone(), address: lease.address })
    }

    /// Forgets the origins of leases that are gone.
    pub(crate) fn tidy_origins(&self) {
        let leases = self.enforcer.leases();
        self.origins.keep_only(|key| leases.table().at(key.address).next().is_some());
    }

    /// What is known of all leases, those that have ended among them, each name and address once.
    pub(crate) fn lease_records(&self) -> Vec<LeaseRecord> {
        self.tidy_origins();
        let mut counts = FxHashMap::<Option<IpAddr>, usize>::default();
        self.each_lease(|lease| *counts.entry(lease.asked_by).or_default() += 1);
        let share = history::fair_share(counts.into_values().collect(), history::MOST);
        // Hashes with a secret key: a set of the keys themselves would take as much memory as the records.
        let secret = self.memo.seed();
        let (mut kept, mut seen) = (FxHashMap::<Option<IpAddr>, usize>::default(), HashSet::new());
        let (mut records, mut left_out) = (Vec::new(), HashSet::new());
        self.each_lease(|LeaseRef { name, address, asked_by, .. }| {
            let kept = kept.entry(asked_by).or_default();
            // Most leases of a flood have no room: no key is made for them.
            if *kept >= share {
                left_out.insert(secret.hash_one((name, address)));
                return;
            }
            if seen.insert(secret.hash_one((name, address))) {
                *kept += 1;
                let origin = self.origins.get(&LeaseKey { name: name.clone(), address });
                records.push(LeaseRecord { name: name.clone(), address, asked_by, origin });
            }
        });
        self.not_stored.store(left_out.difference(&seen).count(), Ordering::Relaxed);
        records
    }

    /// Visits every lease, in parts. Between two parts the leases are free for answers.
    fn each_lease(&self, mut visit: impl FnMut(LeaseRef<'_>)) {
        let mut walk = Some(Walk::default());
        while let Some(from) = walk {
            let leases = self.enforcer.leases();
            let (part, next) = leases.table().walk(from, NAMES_IN_A_PART);
            part.for_each(&mut visit);
            walk = next;
        }
    }

    /// A number that changes when there are new leases.
    pub(crate) fn lease_version(&self) -> u64 {
        self.enforcer.leases().table().news()
    }

    /// Takes over what an earlier process knew of leases. Those that are not open have ended.
    pub(crate) fn inherit(&self, records: Vec<LeaseRecord>, rules: &NameRules) {
        let ended = records.iter().flat_map(|LeaseRecord { name, address, asked_by, .. }| {
            let is_refused = rules.refusal(name, *address).is_some();
            let kept = rules.all_matching(name).filter(move |pattern| pattern.denies() || !is_refused);
            kept.map(move |pattern| Lease {
                pattern: pattern.clone(),
                name: name.clone(),
                address: *address,
                expiry: Instant::default(),
                asked_by: *asked_by,
            })
        });
        self.enforcer.inherit(ended);
        for LeaseRecord { name, address, asked_by, origin } in records {
            if let Some(origin) = origin {
                self.origins.note(LeaseKey { name, address }, asked_by, origin);
            }
        }
        self.tidy_origins();
    }

    pub fn counters(&self) -> Counters {
        self.counting.read()
    }

    pub(crate) fn rules(&self) -> Option<Arc<NameRules>> {
        self.rules.load_full()
    }

    /// What rules open that were not there when it was answered.
    pub(crate) fn recall(&self, rules: &NameRules, before: Option<&NameRules>) -> RecalledLeases {
        let until = self.recent.noted();
        let is_new = |client| {
            rules.names_of(client).is_some() && !before.is_some_and(|before| rules.are_the_same_for(client, before))
        };
        RecalledLeases { leases: self.recalled(rules, 0, is_new), until }
    }

    /// Opens what was answered while rules were changed.
    pub(crate) fn recall_since(&self, noted: u64) -> Result<(), LearnError> {
        let Some(rules) = self.rules() else { return Ok(()) };
        if self.recent.noted() == noted {
            return Ok(());
        }
        let leases = self.recalled(&rules, noted, |client| rules.names_of(client).is_some());
        if leases.is_empty() {
            return Ok(());
        }
        self.enforcer.grant_first(&leases).map_err(|error| self.failed(error))
    }

    fn recalled(&self, rules: &NameRules, since: u64, wanted: impl Fn(IpAddr) -> bool) -> Vec<Lease> {
        let now = self.enforcer.now();
        let oldest = recent::oldest(now, self.settings().lifetimes.longest());
        let mut leases = Vec::new();
        for Recalled { client, at, message } in
            self.recent.recall(Recall { since, oldest }, |client| rules.is_own(client), wanted)
        {
            let Some(patterns) = rules.names_of(client) else { continue };
            let Ok(says) = namewall_dns::wire::addresses(&message) else { continue };
            self.lease(&Reading { client, upstream: None, says: &says, rules, patterns, at }, &mut leases);
        }
        leases.retain(|lease| lease.expiry > now);
        leases
    }

    /// Makes leases that were read by earlier rules what the change of rules would have made of them: it carries them
    /// over to all patterns of the name, and drops what is never leased (S6.3).
    fn follow_rules(&self, leases: &mut Vec<Lease>) {
        let Some(rules) = self.rules() else { return };
        leases.retain(|lease| match rules.refusal_of(lease) {
            Some(why) => {
                let (name, address) = (&lease.name, lease.address);
                lease.asked_by.iter().for_each(|&client| {
                    self.refuse(Refused { client, name: name.clone(), address, why });
                });
                false
            }
            None => true,
        });
        let key = |lease: &Lease| (lease.pattern.clone(), lease.name.clone(), lease.address);
        let mut known: FxHashSet<_> = leases.iter().map(key).collect();
        let carried = leases.iter().flat_map(|lease| {
            let patterns = rules.all_matching(&lease.name);
            patterns.map(|pattern| Lease { pattern: pattern.clone(), ..lease.clone() }).collect::<Vec<_>>()
        });
        let carried = carried.filter(|lease| known.insert(key(lease)) && rules.refusal_of(lease).is_none());
        let carried: Vec<Lease> = carried.collect();
        leases.extend(carried);
    }

    /// Counts and logs leases that were closed since they are never leased any more.
    pub(crate) fn note_revoked(&self, revoked: &[(Lease, Refusal)]) {
        for (Lease { name, address, pattern, .. }, why) in revoked {
            self.counting.revoke(*why);
            warn!(%name, %address, %pattern, "a lease is closed: {why}");
        }
    }

    pub(crate) fn settings(&self) -> Learning {
        **self.settings.load()
    }

    /// What an answer is known to be, if it opens nothing new and need not be read.
    fn is_known(&self, key: AnswerKey) -> Option<Known> {
        let rule_changes = self.rule_changes.load(Ordering::SeqCst);
        let losses = self.losses.load(Ordering::SeqCst);
        self.memo.get(key, State { rule_changes, losses }, self.enforcer.now())
    }

    /// Puts the leases that the addresses of an answer open into the batch.
    fn lease(&self, reading: &Reading<'_>, batch: &mut Vec<Lease>) -> Leased {
        let Reading { client, says, rules, patterns, at: now, .. } = *reading;
        let settings = self.settings();
        let leases = self.enforcer.leases();
        let most = leases.table().bounds().addresses_a_name;
        let mut origin = OriginOf { reading, last: None };
        let mut leased = Leased { opens: Opens::Nothing, until: Some(Instant(Duration::MAX)), known: Known::Unspoken };
        let aliases = says.aliases.iter().filter(|_| settings.aliases);
        for name in std::iter::once(&says.question.name).chain(aliases).filter_map(|name| name.to_domain()) {
            let patterns = rules.matching(patterns, &name);
            if patterns.is_empty() {
                continue;
            }
            leased.known = Known::Open;
            self.counting.add(|all| &all.over_bound, says.addresses.len().saturating_sub(most));
            let mut shared = self.share.get().map(|share| (share, Vec::new()));
            // Clients use the first.
            for one in says.addresses.iter().take(most) {
                let refusal = rules.refusal(&name, one.address);
                let is_refused = |pattern: &RulePattern| refusal.is_some() && !pattern.denies();
                if let Some(why) = refusal.filter(|_| patterns.iter().any(|pattern| is_refused(pattern))) {
                    self.refuse(Refused { client, name: name.clone(), address: one.address, why });
                    // Every refusal is counted, so the answer is read each time.
                    leased.until = None;
                }
                if patterns.iter().all(|pattern| is_refused(pattern)) {
                    continue;
                }
                if let Some((_, opened)) = &mut shared {
                    opened.push((one.address, one.ttl));
                }
                let expiry = settings.lifetimes.expiry(one.ttl, now);
                let use_by = settings.lifetimes.use_by(one.ttl, now);
                leased.until = leased.until.map(|until| until.min(settings.lifetimes.last_with(one.ttl, expiry)));
                let before = batch.len();
                for pattern in patterns.iter().filter(|pattern| !is_refused(pattern)) {
                    let (pattern, name) = ((*pattern).clone(), name.clone());
                    let lease = Lease { pattern, name, address: one.address, expiry, asked_by: Some(client) };
                    if leases.is_open(&lease, expiry) {
                        continue;
                    }
                    if !leases.is_open(&lease, use_by) {
                        leased.opens = Opens::New;
                    } else if leased.opens == Opens::Nothing {
                        leased.opens = Opens::Renewal;
                    }
                    batch.push(lease);
                }
                if batch.len() > before {
                    let key = LeaseKey { name: name.clone(), address: one.address };
                    self.origins.note(key, Some(client), origin.of(one.ttl));
                }
            }
            if let Some((share, opened)) = shared.filter(|_| leased.opens != Opens::Nothing) {
                share.note(Some(client), &name, &opened);
            }
        }
        leased
    }
}

/// An answer that was read, and the rules of the pod that asked.
#[derive(Clone, Copy)]
struct Reading<'a> {
    client: IpAddr,
    /// The server that gave it, if it is known.
    upstream: Option<SocketAddr>,
    says: &'a Addresses,
    rules: &'a NameRules,
    /// The patterns of the client's rules.
    patterns: &'a BitSet,
    /// When it came.
    at: Instant,
}

/// Makes the origins of leases of one answer. Most of its addresses have one TTL, and share one.
struct OriginOf<'a> {
    reading: &'a Reading<'a>,
    last: Option<Arc<Origin>>,
}

impl OriginOf<'_> {
    fn of(&mut self, ttl: Duration) -> Arc<Origin> {
        let ttl = u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
        if let Some(last) = self.last.as_ref().filter(|last| last.ttl == ttl) {
            return last.clone();
        }
        let owners = self.reading.says.aliases.iter().filter_map(|owner| owner.to_domain()).collect();
        let origin = Arc::new(Origin::new(self.reading.upstream, ttl, owners));
        self.last = Some(origin.clone());
        origin
    }
}

/// What the addresses of an answer open.
struct Leased {
    opens: Opens,
    /// Until when the same answer would open nothing new, if nothing else changes; None if it must be read again.
    until: Option<Instant>,
    known: Known,
}

/// Leases that answers open, until they are committed.
#[derive(Debug, Default)]
pub struct Batch {
    leases: Vec<Lease>,
    /// How often the rules had changed when the first of them was read.
    rule_changes: Option<u64>,
}

impl Batch {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.leases.len()
    }
}

/// Leases of answers that came before their rules.
#[derive(Debug)]
pub(crate) struct RecalledLeases {
    pub(crate) leases: Vec<Lease>,
    /// How many answers had come by then.
    pub(crate) until: u64,
}

impl<D: Dataplane> Learn for Learner<D> {
    type Batch = Batch;

    fn knows(&self, client: IpAddr) -> bool {
        self.rules.load().as_ref().is_some_and(|rules| rules.is_own(client))
    }

    fn learn(&self, answer: &Answer<'_>, batch: &mut Batch) -> Opens {
        // Loaded before anything is read: if rules or leases change meanwhile, the memo is of an old state.
        let rule_changes = self.rule_changes.load(Ordering::SeqCst);
        let rules = self.rules.load();
        let Some(rules) = &*rules else { return Opens::Nothing };
        let patterns = rules.names_of(answer.client);
        let key = patterns.map(|_| self.memo.key(answer.client, answer.bytes, &self.settings.load().lifetimes));
        let known = match key {
            // Nobody asks here but pods, except where everybody may.
            None if rules.is_own(answer.client) => Some(Known::Unspoken),
            None => return Opens::Nothing,
            Some(key) => self.is_known(key),
        };
        if known == Some(Known::Unspoken) {
            self.recent.note(answer.client, answer.bytes, self.enforcer.now());
            // A rule may have come meanwhile, and not have found it.
            if self.rule_changes.load(Ordering::SeqCst) != rule_changes {
                return self.learn(answer, batch);
            }
        }
        let (None, Some(patterns), Some(key)) = (known, patterns, key) else { return Opens::Nothing };
        let losses = self.losses.load(Ordering::SeqCst);
        self.counting.add(|all| &all.read, 1);
        let Ok(says) = answer.addresses() else { return Opens::Unreadable };
        self.counting.add(|all| &all.foreign, says.foreign);
        let at = self.enforcer.now();
        let Answer { client, upstream, .. } = *answer;
        let reading = Reading { client, upstream, says: &says, rules, patterns, at };
        // Leases that are in the batch already were read by these rules, or by older ones.
        batch.rule_changes.get_or_insert(rule_changes);
        let Leased { opens, until, known } = self.lease(&reading, &mut batch.leases);
        if known == Known::Unspoken {
            self.recent.note(answer.client, answer.bytes, at);
            if self.rule_changes.load(Ordering::SeqCst) != rule_changes {
                return self.learn(answer, batch);
            }
        }
        if let (Opens::Nothing, Some(until), 0) = (opens, until, says.foreign) {
            self.memo.put(key, State { rule_changes, losses }, Entry { until, known });
        }
        self.counting.add(|all| &all.learned, usize::from(opens != Opens::Nothing));
        opens
    }

    fn commit(&self, batch: &mut Batch) -> Result<(), LearnError> {
        let Batch { mut leases, rule_changes } = std::mem::take(batch);
        self.commits.fetch_add(1, Ordering::SeqCst);
        let dataplane = self.enforcer.dataplane_for_answers();
        // Rules change only while this lock is held.
        if rule_changes.is_some_and(|then| then != self.rule_changes.load(Ordering::SeqCst)) {
            self.follow_rules(&mut leases);
        }
        let slow = self.settings().slow_kernel;
        if !slow.is_zero() {
            std::thread::sleep(slow);
        }
        let done = self.enforcer.grant_with(dataplane, &leases);
        self.commits.fetch_sub(1, Ordering::SeqCst);
        if let (Some(share), Ok(())) = (self.share.get(), &done) {
            share.finish();
        }
        done.map_err(|error| self.failed(error))
    }

    fn is_busy(&self) -> bool {
        // Another loop's answers take microseconds: to wait for them is better than to look again later.
        let is_opening = self.commits.load(Ordering::SeqCst) > 0;
        self.enforcer.is_wanted() || (!is_opening && self.enforcer.is_busy())
    }
}

/// The leases of a node, for the thread that stores them.
#[derive(Debug)]
pub(crate) struct StoredLeases<D>(pub(crate) Arc<Learner<D>>);

impl<D: Dataplane> Records for StoredLeases<D> {
    fn version(&self) -> u64 {
        self.0.lease_version()
    }

    fn records(&self) -> Vec<LeaseRecord> {
        self.0.lease_records()
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod revision_tests;
#[cfg(test)]
mod staging_tests;
#[cfg(test)]
mod tests;
