//! From answers to leases.

use crate::clock::Clock;
use crate::counters::{Counters, Counting};
use crate::law::Law;
use crate::memo::{Memo, State};
use crate::share::{Heard, Share};
use namewall_dataplane::Dataplane;
use namewall_dataplane::nft::Nft;
use namewall_dns::{Answer, Learn, LearnError, Noted};
use namewall_policy::domain::DomainName;
use namewall_policy::lease::{Lifetimes, Refusal};
use namewall_policy::{Instant, Lease};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// How names are learned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Learning {
    pub lifetimes: Lifetimes,
    /// Whether a rule also speaks of names that are only led over by a CNAME (S6.2).
    pub aliases: bool,
    /// For tests: how much longer the kernel takes.
    pub slow_kernel: Duration,
}

#[derive(Debug)]
pub struct Learner {
    clock: Clock,
    settings: RwLock<Learning>,
    law: RwLock<Option<Arc<Law>>>,
    /// How often the law, or how names are learned, has changed.
    laws: AtomicU64,
    memo: Mutex<Memo>,
    kernel: Arc<Mutex<Nft>>,
    /// How many wait for the kernel with something else than answers: a policy, a heartbeat. The
    /// lock knows no order, so that a flood of answers would keep them waiting for as long as it lasts.
    waiting: AtomicUsize,
    counting: Counting,
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

/// So many are remembered until somebody asks; all are counted.
const MOST_REFUSED: usize = 64;

impl Learner {
    pub(crate) fn new(kernel: Arc<Mutex<Nft>>, clock: Clock, settings: Learning) -> Self {
        let settings = RwLock::new(settings);
        Self {
            clock,
            settings,
            law: RwLock::default(),
            laws: AtomicU64::new(0),
            memo: Mutex::new(Memo::new()),
            kernel,
            waiting: AtomicUsize::new(0),
            counting: Counting::default(),
            refused: Mutex::default(),
            share: OnceLock::new(),
        }
    }

    /// From now on what is learned is told. Only the first counts.
    pub fn share_with(&self, share: Arc<dyn Share>) {
        let _ = self.share.set(share);
    }

    /// Opens what others have learned, as if a pod had asked here: for the patterns that rules speak of, and
    /// never what is never leased. Gives how much was not open yet.
    pub fn hear(&self, heard: &[Heard]) -> Result<usize, LearnError> {
        let Some(law) = self.law() else { return Ok(0) };
        let (lifetimes, now) = (self.settings().lifetimes, self.clock.now());
        let mut kernel = self.kernel();
        let mut batch = Vec::new();
        for Heard { name, address, left } in heard {
            let expiry = lifetimes.expiry(*left, now);
            for pattern in law.all_matching(name).filter(|_| law.refusal(name, *address).is_none()) {
                let lease =
                    Lease { pattern: pattern.clone(), name: name.clone(), address: *address, expiry, asked_by: None };
                if !kernel.leases().has(&lease, expiry) {
                    batch.push(lease);
                }
            }
        }
        if batch.is_empty() {
            return Ok(0);
        }
        let count = batch.len();
        kernel.grant(&batch, now).map_err(|error| self.fails(&error))?;
        Ok(count)
    }

    fn fails(&self, error: &dyn std::fmt::Display) -> LearnError {
        self.counting.add(|all| &all.failed, 1);
        LearnError(error.to_string())
    }

    /// From now on this is what names are learned for.
    pub(crate) fn take(&self, law: Law) {
        *self.law.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(law));
        self.laws.fetch_add(1, Ordering::SeqCst);
    }

    pub fn set(&self, settings: Learning) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// What was refused since this was last asked, each once.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn refuse(&self, refused: Refused) {
        self.counting.add(|all| &all.refused, 1);
        let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_REFUSED && !all.contains(&refused) {
            all.push(refused);
        }
    }

    pub fn counters(&self) -> Counters {
        self.counting.read()
    }

    /// Answers stand back for whoever asks for it here.
    pub(crate) fn kernel(&self) -> MutexGuard<'_, Nft> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let kernel = self.lock();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        kernel
    }

    fn lock(&self) -> MutexGuard<'_, Nft> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn law(&self) -> Option<Arc<Law>> {
        self.law.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn settings(&self) -> Learning {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learn for Learner {
    type Batch = Vec<Lease>;

    fn knows(&self, client: IpAddr) -> bool {
        self.law().is_some_and(|law| law.is_own(client))
    }

    fn cares_about(&self, client: IpAddr) -> bool {
        self.law().is_some_and(|law| law.names_of(client).is_some())
    }

    fn is_known(&self, client: IpAddr, answer: &[u8]) -> bool {
        let (Ok(kernel), Ok(memo)) = (self.kernel.try_lock(), self.memo.try_lock()) else { return false };
        let state = State { laws: self.laws.load(Ordering::SeqCst), losses: kernel.leases().losses() };
        memo.has(memo.key(client, answer), state, self.clock.now())
    }

    fn note(&self, answer: &Answer<'_>, batch: &mut Vec<Lease>) -> Noted {
        // Read first: what changes meanwhile is none of what will be remembered.
        let laws = self.laws.load(Ordering::SeqCst);
        let Some(law) = self.law() else { return Noted::Nothing };
        let Some(names) = law.names_of(answer.client) else { return Noted::Nothing };
        let (settings, now) = (self.settings(), self.clock.now());
        self.counting.add(|all| &all.foreign, answer.says.foreign);
        // What is open long enough costs nothing more, and what is open as long as the answer is good holds
        // nobody up.
        let kernel = self.kernel.try_lock().ok();
        let is_open =
            |lease: &Lease, until: Instant| kernel.as_ref().is_some_and(|kernel| kernel.leases().has(lease, until));
        let mut noted = Noted::Nothing;
        // Until when the same answer would change nothing.
        let mut until = (answer.says.foreign == 0).then_some(Instant(Duration::MAX));
        let question = std::iter::once(&answer.says.question.name);
        let aliases = answer.says.aliases.iter().filter(|_| settings.aliases);
        for name in question.chain(aliases).filter_map(|name| name.to_domain()) {
            let patterns = law.matching(names, &name);
            if patterns.is_empty() {
                continue;
            }
            let mut opened = Vec::new();
            for one in &answer.says.addresses {
                if let Some(why) = law.refusal(&name, one.address) {
                    let (client, name) = (answer.client, name.clone());
                    self.refuse(Refused { client, name, address: one.address, why });
                    // Each time is counted.
                    until = None;
                    continue;
                }
                opened.push((one.address, one.ttl));
                let expiry = settings.lifetimes.expiry(one.ttl, now);
                until = until.map(|until| until.min(settings.lifetimes.last_with(one.ttl, expiry)));
                let leases = patterns.iter().map(|pattern| Lease {
                    pattern: (*pattern).clone(),
                    name: name.clone(),
                    address: one.address,
                    expiry,
                    asked_by: Some(answer.client),
                });
                let use_by = settings.lifetimes.use_by(one.ttl, now);
                for lease in leases.filter(|lease| !is_open(lease, expiry)) {
                    noted = if noted == Noted::First || !is_open(&lease, use_by) { Noted::First } else { Noted::Soon };
                    batch.push(lease);
                }
            }
            if let (Some(share), true) = (self.share.get(), noted != Noted::Nothing) {
                share.note(&name, &opened);
            }
        }
        let changes = noted != Noted::Nothing;
        if let (false, Some(until), Some(kernel), Ok(mut memo)) = (changes, until, &kernel, self.memo.lock()) {
            let key = memo.key(answer.client, answer.bytes);
            memo.put(key, State { laws, losses: kernel.leases().losses() }, until);
        }
        self.counting.add(|all| &all.learned, usize::from(changes));
        noted
    }

    fn commit(&self, batch: &mut Vec<Lease>) -> Result<(), LearnError> {
        let slow = self.settings().slow_kernel;
        let mut kernel = self.lock();
        if !slow.is_zero() {
            std::thread::sleep(slow);
        }
        let done = kernel.grant(batch, self.clock.now());
        drop(kernel);
        batch.clear();
        if let (Some(share), Ok(_)) = (self.share.get(), &done) {
            share.finish();
        }
        done.map_err(|error| self.fails(&error))
    }

    fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 || self.kernel.try_lock().is_err()
    }
}
