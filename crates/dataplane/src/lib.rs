//! The kernel's side of a Program. [`Dataplane`] is the seam: the agent enforces a
//! Program through it and does not know what stands behind it. `nft` is the
//! kernel's nftables, with `render` deciding what its table should hold;
//! [`memory::Memory`] has no kernel and serves tests and simulations. No policy is
//! decided here: the Program was compiled elsewhere.

pub mod conntrack;
mod cut;
pub mod guard;
mod inside;
mod leases;
pub mod memory;
pub mod netlink;
pub mod nflog;
pub mod nft;
mod remembered;
pub mod render;
#[cfg(test)]
mod sample;
mod single;
mod tunnels;

pub use conntrack::Connection;
pub use cut::{CutEstablished, Excused, Judge};
pub use guard::{ExtraSource, Guard, GuardDrops, Guarded, PodInterface};
pub use inside::{FrameChecks, Inside, PodConnections, PodDenials, PodNamespace, SecondConnection, SecondStatus};
pub use leases::LeaseGroups;
pub use nflog::{Denied, Told};
pub use single::SingleThreaded;
pub use tunnels::Tunnels;

use namewall_policy::lease::{LeaseChange, NeverLeased, Refusal};
use namewall_policy::{Instant, Lease, LeaseTable, Program};
use netlink::bridges::Bridges;
use render::Scope;
use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

/// Something that enforces a Program on one node. Dropping it leaves what it enforces in place.
pub trait Dataplane: Debug + Send + 'static {
    type Error: Error + Send + Sync + 'static;
    type Connections: ListConnections<Error = Self::Error>;
    type Denials: FollowDenials<Error = Self::Error>;
    type Plan: Plan;

    /// Begins to plan a change from what is enforced now. The plan is worked out without the data plane, so that leases
    /// are opened meanwhile.
    fn plan(&self) -> Self::Plan;

    /// Goes from what is enforced to what is desired by the smallest change, all at once. The plan was worked out
    /// for the same Program and scope, or not at all. Where something else is enforced by now, it is worked out again.
    fn replace_planned(&mut self, desired: &Desired<'_>, plan: Self::Plan) -> Result<Applied, Self::Error>;

    /// Writes some of what a planned change needs and no rule asks for yet. True if there is more of it. Leases can be
    /// opened in between, and `leases` has all that are open. A change that is not staged, or not to the end, is
    /// written all at once.
    fn stage(&mut self, plan: &mut Self::Plan, leases: &LeaseTable, now: Instant) -> Result<bool, Self::Error> {
        let _ = (plan, leases, now);
        Ok(false)
    }

    /// Removes some of what no rule asks for any more since the last change. True if there is more of it.
    fn clear(&mut self, leases: &LeaseTable) -> Result<bool, Self::Error> {
        let _ = leases;
        Ok(false)
    }

    /// The same as `replace_planned` for callers that keep nobody waiting.
    fn replace(&mut self, desired: &Desired<'_>) -> Result<Applied, Self::Error> {
        let plan = self.plan();
        self.replace_planned(desired, plan)
    }

    /// True if rules are in force, be it those of an earlier process. Changes nothing.
    fn is_enforcing(&mut self) -> Result<bool, Self::Error>;

    /// Guards these interfaces, and no others: what comes from one without a source of its pod is dropped (S1.9).
    fn guard(&mut self, guard: &Guard<'_>) -> Result<Guarded, Self::Error>;

    /// Makes the frames of the bridges of guarded interfaces pass the firewall again, if somebody has changed that. To be
    /// called when links have changed.
    fn filter_bridges(&mut self) -> Result<Bridges, Self::Error> {
        Ok(Bridges::default())
    }

    /// What the guard has dropped, in all.
    fn guard_drops(&mut self) -> Result<GuardDrops, Self::Error>;

    /// Enforces a pod's policies on its second interfaces, inside its network namespace. A failure is a part of the
    /// status.
    fn inside(&mut self, inside: &Inside<'_>) -> SecondStatus;

    /// Forgets all network namespaces but these. The tables there stay as they are.
    fn keep_inside(&mut self, pods: &[PodNamespace]);

    /// True if a pod's network namespace has changed, or `inside` has failed for it, so that it should be called again.
    /// Links and addresses are looked at every time, tables only if that is asked for: it takes a question to the kernel
    /// for each namespace.
    fn has_news_inside(&mut self, looks_at_tables: bool) -> bool;

    /// The number of the last change to the tables of each network namespace that this process knows of, by the name of
    /// the namespace. The next process tells by it whether somebody else has changed tables meanwhile.
    fn seen_inside(&self) -> BTreeMap<String, u32> {
        BTreeMap::new()
    }

    /// Opens and closes addresses after a grant; returns when it is in force. `leases` already has the grant.
    fn open(&mut self, change: &LeaseChange, leases: &LeaseTable, now: Instant) -> Result<(), Self::Error>;

    /// Opens a handle to list connections with, so that a long list keeps nobody else waiting.
    fn connections(&self) -> Result<Self::Connections, Self::Error>;

    /// Cuts connections (S3.4). What is still sent through one of TCP is answered with a reset. One that cannot be cut does not save the others.
    fn cut(&mut self, connections: &[&Connection]) -> Result<Cut, Self::Error>;

    /// The same for connections over second interfaces, in the namespace of this name.
    fn cut_inside(&mut self, id: &str, connections: &[&Connection]) -> Result<Cut, Self::Error> {
        let _ = (id, connections);
        Ok(Cut::default())
    }

    /// The denials on second interfaces that nobody has taken yet. Does not wait.
    fn take_denials_inside(&mut self) -> Vec<PodDenials> {
        Vec::new()
    }

    /// True if the enforced scope takes pods' DNS to our server while that is alive.
    fn intercepts_dns(&self) -> bool;

    /// Takes pods' DNS to our server for this long from now.
    fn beat(&mut self, life: Duration) -> Result<(), Self::Error>;

    /// Stops taking pods' DNS to our server at once.
    fn stop_beating(&mut self) -> Result<(), Self::Error>;

    /// How often each rule of a policy has matched, by what `explain` and the log call it. Rules of audited
    /// policies have `audit: ` before it.
    fn counts(&mut self) -> Result<BTreeMap<String, Count>, Self::Error>;

    /// Opens a handle to follow denied packets with, as far as rules log them to this group.
    fn denials(&self, log_group: u16) -> Result<Self::Denials, Self::Error>;
}

/// A change that is planned.
pub trait Plan {
    /// Works out what can be without the data plane. This may take long.
    fn work_out(&mut self, program: &Program, scope: &Scope);

    /// What the change replaces, if that is large: its caller drops it when nobody waits.
    fn replaced(&self) -> Option<Box<dyn Any + Send>> {
        None
    }
}

/// Lists the connections that exist.
pub trait ListConnections {
    type Error;

    fn list(&mut self) -> Result<Vec<Connection>, Self::Error>;

    /// Those over second interfaces of pods, as the pods' network namespaces have them.
    fn list_inside(&mut self) -> Vec<PodConnections<Self::Error>> {
        Vec::new()
    }
}

/// Follows denied packets.
pub trait FollowDenials: Send + 'static {
    type Error: Error;

    /// Waits for the next ones. That some were lost is no error.
    fn wait(&mut self) -> Result<Told, Self::Error>;

    /// Begins anew after an error. `wait` is only called again when this has succeeded.
    fn reopen(&mut self) -> Result<(), Self::Error>;
}

/// What a data plane is to enforce.
#[derive(Clone, Copy, Debug)]
pub struct Desired<'a> {
    pub program: &'a Program,
    pub scope: &'a Scope,
    /// The leases that are open; a changed rule may be open to them too.
    pub leases: &'a LeaseTable,
    /// What has changed about them with the Program. `leases` already has it.
    pub changed: &'a LeaseChange,
    /// What may be taken over of an earlier process.
    pub adoption: Adoption<'a>,
    pub now: Instant,
}

/// What leases of an earlier process must be like.
#[derive(Clone, Copy, Debug)]
pub struct Adoption<'a> {
    pub never_leased: &'a NeverLeased,
    /// None is longer.
    pub longest: Duration,
}

/// How often a rule has matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// First packets of connections; later packets are accepted before any rule.
    pub packets: u64,
    pub bytes: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

/// What was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    pub connections: usize,
    /// TCP connections that are forgotten to make room for others: a packet from the other end may open them again.
    pub forgotten: usize,
}

impl std::ops::AddAssign for Cut {
    fn add_assign(&mut self, more: Self) {
        self.connections += more.connections;
        self.forgotten += more.forgotten;
    }
}

/// How a change was worked out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// The rules in force were read, and made right: at the start, and after a failure that leaves unknown what is in
    /// force.
    Rebuild,
    /// All rules were made anew and compared with those in force.
    #[default]
    Whole,
    /// Only pods changed: a few elements.
    Pods,
}

/// What a change took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    pub way: Way,
    /// Messages to the kernel; none if nothing had to be changed.
    pub operations: usize,
    /// True if existing connections may be forbidden now, so that they have to be judged again.
    pub narrows: bool,
    /// The leases that an earlier process left open; None if there was no such process, or it was adopted before.
    pub adopted: Option<Vec<Lease>>,
    /// True if the rules that an earlier process left may allow connections that these forbid: policies have changed
    /// while no process ran.
    pub narrows_adopted: bool,
    /// Leases of an earlier process that were closed, since they are never leased (S6.8).
    pub revoked: Vec<(Lease, Refusal)>,
}
