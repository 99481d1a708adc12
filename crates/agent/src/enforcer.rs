//! The data plane and the leases of a node, each behind a lock of its own.
//!
//! ```text
//!  policy change, heartbeat ──► data plane (lock 1) ──► leases, to read (lock 2)
//!  answers that open          ──► data plane (lock 1) ──► leases, to write (lock 2)
//!  "is it open already?"      ───────────────────────────► leases, to read (lock 2)
//! ```
//! A thread that writes leases holds the data plane's lock first. So the leases
//! are never locked for writing while the kernel is busy, and an answer that
//! opens nothing waits for nothing.

mod stage;

use crate::cuts::{CutReport, CutSecond};
use crate::metrics::{Meter, add};
use namewall_dataplane::render::Scope;
use namewall_dataplane::{
    Adoption, Applied, Connection, CutEstablished, Dataplane, Desired, Excused, Inside, Judge, ListConnections, Plan,
    PodConnections, PodNamespace, SecondConnection, SecondStatus,
};
use namewall_policy::lease::{Bounds, LeaseChange, Revision};
use namewall_policy::{Instant, Lease, LeaseStore, LeaseTable, Program};
use namewall_runtime::Clock;
use rustc_hash::FxHashSet;
use stage::Staged;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Connections that are judged before answers get their turn.
const JUDGED_AT_ONCE: usize = 256;
/// Expired names are dropped this many at a time, so that answers do not wait for it.
const FORGOTTEN_AT_ONCE: usize = 5_000;

#[derive(Debug)]
pub(crate) struct Enforcer<D> {
    dataplane: Mutex<D>,
    /// How many threads wait for the data plane with something other than answers: a policy, a heartbeat. The lock
    /// has no order, so a flood of answers would keep them waiting for as long as it lasts.
    waiting: AtomicUsize,
    leases: RwLock<LeaseStore>,
    /// Connections that an expired lease of an earlier process may have opened.
    excused: Mutex<Excused>,
    clock: Arc<dyn Clock>,
    meter: Arc<Meter>,
    /// How often the lock was free between two parts of a change.
    #[cfg(test)]
    free_turns: AtomicUsize,
}

/// What is enforced from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next<'a> {
    pub(crate) program: &'a Program,
    pub(crate) scope: &'a Scope,
    /// What becomes of the leases.
    pub(crate) revision: Revision<'a>,
    /// Leases that the new rules open besides.
    pub(crate) recalled: &'a [Lease],
    /// No lease lasts for longer.
    pub(crate) longest: Duration,
}

/// What is judged again after a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recheck<'a> {
    pub(crate) program: &'a Program,
    pub(crate) scope: &'a Scope,
    pub(crate) cut: CutEstablished,
}

/// The connections that exist.
struct Listed<E> {
    own: Vec<Connection>,
    inside: Vec<ListedPod>,
    /// Why those of a pod are missing.
    failed: Option<E>,
}

/// Those over second interfaces of a pod.
struct ListedPod {
    id: String,
    pod: String,
    addresses: Vec<IpAddr>,
    connections: Vec<SecondConnection>,
}

impl<D: Dataplane> Enforcer<D> {
    pub(crate) fn new(dataplane: D, bounds: Bounds, clock: Arc<dyn Clock>) -> Self {
        let leases = RwLock::new(LeaseStore::new(LeaseTable::with_bounds(bounds)));
        let (waiting, excused, meter) = (AtomicUsize::new(0), Mutex::default(), Arc::default());
        Self {
            dataplane: Mutex::new(dataplane),
            waiting,
            leases,
            excused,
            clock,
            meter,
            #[cfg(test)]
            free_turns: AtomicUsize::new(0),
        }
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Locks the data plane ahead of the answers that wait for it: those give way while `is_busy`.
    pub(crate) fn dataplane(&self) -> MutexGuard<'_, D> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let dataplane = self.dataplane.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        dataplane
    }

    /// True if an answer that opens something would have to wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 || self.dataplane.try_lock().is_err()
    }

    /// True if something other than an answer waits for the data plane.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// The leases, to read.
    pub(crate) fn leases(&self) -> RwLockReadGuard<'_, LeaseStore> {
        self.leases.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The leases, to write. The guard of the data plane shows that the locks are taken in order.
    fn leases_mut(&self, _dataplane: &mut MutexGuard<'_, D>) -> RwLockWriteGuard<'_, LeaseStore> {
        self.leases.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds every lock that an answer could wait for.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> (MutexGuard<'_, D>, RwLockWriteGuard<'_, LeaseStore>) {
        let mut dataplane = self.dataplane();
        let leases = self.leases_mut(&mut dataplane);
        (dataplane, leases)
    }

    /// Enforces a Program, and revises the leases in the same transaction. Leases of an earlier process that were found
    /// on the way count from now on. `enforced` runs before anything else can change the data plane.
    pub(crate) fn replace(&self, next: &Next<'_>, enforced: impl FnOnce()) -> Result<Applied, D::Error> {
        let Next { program, scope, revision, longest, .. } = *next;
        let began = self.now();
        // Rendered while answers open what they want to: that takes longer than an answer may be held.
        let mut plan = self.dataplane().plan();
        plan.work_out(program, scope);
        let staged = self.stage(next, &mut plan);
        let Staged { survey, recalled } =
            staged.inspect_err(|_| self.meter.program.ended(self.now().since(began), false))?;
        let replaced_table = plan.replaced();
        let mut dataplane = self.dataplane();
        // Planned with the leases locked for reading only, so that answers can still be compared with them. The lock of
        // the data plane keeps others from changing them.
        let revised = self.leases().plan_after(&survey, &revision);
        let revoked = revised.revoked.clone();
        let changed = self.leases_mut(&mut dataplane).revise(&revision, revised, &recalled);
        let leases = self.leases();
        let adoption = Adoption { never_leased: revision.next.never_leased, longest };
        let desired = Desired { program, scope, leases: leases.table(), changed: &changed, adoption, now: self.now() };
        let replaced = dataplane.replace_planned(&desired, plan);
        drop(leases);
        self.meter.program.ended(self.now().since(began), replaced.is_ok());
        let mut store = self.leases_mut(&mut dataplane);
        match &replaced {
            Ok(_) => {
                add(&self.meter.granted, changed.opened.len());
                store.acknowledge();
            }
            Err(_) => store.take_back(),
        }
        drop(store);
        let mut applied = replaced?;
        applied.revoked.extend(revoked);
        if applied.operations > 0 {
            self.meter.went(applied.way);
        }
        if let Some(found) = &applied.adopted {
            self.leases_mut(&mut dataplane).adopt(found.clone());
        }
        enforced();
        drop(dataplane);
        drop(replaced_table);
        self.clear();
        Ok(applied)
    }

    /// Enforces a Program on the second interfaces of pods. Answers get their turn between two pods.
    pub(crate) fn inside(&self, pods: &[PodNamespace], program: &Program, scope: &Scope) -> Vec<SecondStatus> {
        self.dataplane().keep_inside(pods);
        let one = |pod| {
            let mut dataplane = self.dataplane();
            let leases = self.leases();
            dataplane.inside(&Inside { pod, program, scope, leases: leases.table(), now: self.now() })
        };
        pods.iter().map(one).collect()
    }

    /// Locks the data plane to open what answers say, after everybody else who waits.
    pub(crate) fn dataplane_for_answers(&self) -> MutexGuard<'_, D> {
        self.dataplane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens leases ahead of the answers that wait.
    pub(crate) fn grant_first(&self, leases: &[Lease]) -> Result<(), D::Error> {
        self.grant_with(self.dataplane(), leases)
    }

    /// Opens leases; returns when they are in force. On an error they are as they were before.
    pub(crate) fn grant_with(&self, dataplane: MutexGuard<'_, D>, leases: &[Lease]) -> Result<(), D::Error> {
        let now = self.now();
        self.open_with(dataplane, now, |store| store.grant(leases, now))
    }

    /// Enters leases and opens them.
    fn open_with(
        &self,
        mut dataplane: MutexGuard<'_, D>,
        now: Instant,
        enter: impl FnOnce(&mut LeaseStore) -> LeaseChange,
    ) -> Result<(), D::Error> {
        let change = enter(&mut self.leases_mut(&mut dataplane));
        let done = dataplane.open(&change, self.leases().table(), now);
        self.meter.leases.ended(self.now().since(now), done.is_ok());
        let mut store = self.leases_mut(&mut dataplane);
        match &done {
            Ok(()) => {
                add(&self.meter.granted, change.opened.len());
                store.acknowledge();
            }
            Err(_) => store.take_back(),
        }
        done
    }

    /// Cuts the connections that a Program forbids (S3.4), and forgets expired leases without connections.
    pub(crate) fn recheck(&self, recheck: Recheck<'_>) -> Result<CutReport, D::Error> {
        let Listed { own: connections, inside, mut failed } = self.list_connections()?;
        let mut excused = self.excused();
        let second = inside.iter().flat_map(|pod| &pod.connections).map(|second| &second.connection);
        excused.keep_only(connections.iter().chain(second));
        let mut report = CutReport::default();
        for some in connections.chunks(JUDGED_AT_ONCE) {
            // Judged while no lease can change: what a lease opened is not cut.
            let mut dataplane = self.dataplane();
            let leases = self.leases();
            let judge = Judge::new(recheck.program, &leases, recheck.cut).on(recheck.scope).excusing(&excused);
            let forbidden: Vec<&Connection> = some.iter().filter(|connection| judge.forbids(connection)).collect();
            // One that cannot be cut must not save the others.
            match dataplane.cut(&forbidden) {
                Ok(more) => report.cut += more,
                Err(error) => failed = failed.or(Some(error)),
            }
            report.forbidden.extend(forbidden.into_iter().cloned());
        }
        for pod in &inside {
            for some in pod.connections.chunks(JUDGED_AT_ONCE) {
                let mut dataplane = self.dataplane();
                let leases = self.leases();
                let judge = Judge::new(recheck.program, &leases, recheck.cut).on(recheck.scope).excusing(&excused);
                let is_forbidden = |second: &&SecondConnection| judge.forbids_second(&pod.addresses, second);
                let forbidden: Vec<&SecondConnection> = some.iter().filter(is_forbidden).collect();
                let connections: Vec<&Connection> = forbidden.iter().map(|second| &second.connection).collect();
                match dataplane.cut_inside(&pod.id, &connections) {
                    Ok(more) => report.cut += more,
                    Err(error) => failed = failed.or(Some(error)),
                }
                let told = |second: &SecondConnection| CutSecond::new(&pod.pod, &pod.addresses, second);
                report.second.extend(forbidden.into_iter().map(told));
            }
        }
        drop(excused);
        self.forget(&connections, &inside);
        failed.map_or(Ok(report), Err)
    }

    /// Enters leases of an earlier process that have ended.
    pub(crate) fn inherit(&self, ended: impl Iterator<Item = Lease>) {
        let mut dataplane = self.dataplane();
        self.leases_mut(&mut dataplane).inherit(ended);
    }

    /// Notes which connections an expired lease of an earlier process may have opened. Called when its leases are
    /// adopted, with the first Program of this process.
    pub(crate) fn excuse(&self, recheck: Recheck<'_>) -> Result<(), D::Error> {
        let listed = self.list_connections()?;
        let leases = self.leases();
        let judge = Judge::new(recheck.program, &leases, recheck.cut).on(recheck.scope);
        let mut excused = judge.excuse(&listed.own);
        for pod in &listed.inside {
            judge.excuse_second(&pod.addresses, &pod.connections, &mut excused);
        }
        *self.excused() = excused;
        Ok(())
    }

    fn excused(&self) -> MutexGuard<'_, Excused> {
        self.excused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets expired leases, except for addresses that connections lead to.
    pub(crate) fn tidy(&self) -> Result<(), D::Error> {
        let Listed { own, inside, failed } = self.list_connections()?;
        // Where connections are not known, leases that opened some of them are kept.
        if let Some(error) = failed {
            return Err(error);
        }
        self.forget(&own, &inside);
        Ok(())
    }

    /// The list is read while nobody waits for it.
    fn list_connections(&self) -> Result<Listed<D::Error>, D::Error> {
        let mut connections = self.dataplane().connections()?;
        let mut listed = Listed { own: connections.list()?, inside: Vec::new(), failed: None };
        for PodConnections { id, pod, addresses, connections } in connections.list_inside() {
            match connections {
                Ok(connections) => listed.inside.push(ListedPod { id, pod, addresses, connections }),
                Err(error) => listed.failed = listed.failed.or(Some(error)),
            }
        }
        Ok(listed)
    }

    fn forget(&self, own: &[Connection], inside: &[ListedPod]) {
        let second = inside.iter().flat_map(|pod| &pod.connections).map(|second| &second.connection);
        let connected: FxHashSet<IpAddr> =
            own.iter().chain(second).map(|connection| connection.destination.0).collect();
        let mut dataplane = self.dataplane();
        let is_connected = |address| connected.contains(&address);
        let forgotten = self.leases_mut(&mut dataplane).forget(self.now(), FORGOTTEN_AT_ONCE, is_connected);
        add(&self.meter.names_expired, forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ip, names_of_web, program};
    use namewall_dataplane::memory::Memory;
    use namewall_policy::domain::{DomainPattern, RulePattern};
    use namewall_policy::lease::{NeverLeased, Rules};
    use namewall_runtime::ManualClock;

    /// Goes over to rules for names.
    fn replace(enforcer: &Enforcer<Memory>) {
        let program = program(&[names_of_web(&["*.example.org"])]);
        let (scope, never) = (Scope::default(), NeverLeased::new("cluster.local".parse().expect("a name")));
        let revision = Revision { before: None, next: Rules { program: &program, never_leased: &never } };
        let longest = Duration::from_secs(3600);
        let next = Next { program: &program, scope: &scope, revision, recalled: &[], longest };
        enforcer.replace(&next, || {}).expect("memory takes it");
    }

    #[test]
    fn s6_6_the_lock_is_free_between_the_parts_before_a_switch_and_after_it() {
        let memory = Memory::default();
        let enforcer = Enforcer::new(memory.clone(), Bounds::default(), Arc::new(ManualClock::default()));
        memory.take_parts(5, 7);
        replace(&enforcer);
        assert_eq!(enforcer.free_turns.load(Ordering::SeqCst), 5 + 7);
    }

    #[test]
    fn s6_6_leases_are_opened_while_a_change_of_policies_is_worked_out() {
        let memory = Memory::default();
        let enforcer = Arc::new(Enforcer::new(memory.clone(), Bounds::default(), Arc::new(ManualClock::default())));
        let lease = Lease {
            pattern: RulePattern::allow(DomainPattern::Subdomains("example.org".parse().expect("a name"))),
            name: "api.example.org".parse().expect("a name"),
            address: ip("198.51.100.1"),
            expiry: Instant(Duration::from_secs(60)),
            asked_by: None,
        };
        let (answers, opened) = (enforcer.clone(), lease.clone());
        memory.while_planning(move || {
            assert!(!answers.is_busy(), "answers need not wait");
            answers.grant_with(answers.dataplane_for_answers(), &[opened]).expect("memory takes it");
        });
        replace(&enforcer);
        assert_eq!(memory.leases(), [lease], "the lease that came meanwhile is not lost");
    }
}
