//! What it costs to tell the kernel: a start, a change, a lease. Each part is
//! a process of its own, so that its memory is its own too.

mod changes;
mod grants;
mod held;
mod learned;
mod starts;

use anyhow::Result;
use clap::Parser;
use namewall_bench::Cluster;
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::{Nft, Settings};
use namewall_dataplane::render::Scope;
use namewall_policy::Snapshot;
use namewall_policy::lease::Bounds;
use namewall_policy::model::NodeId;
use namewall_sandbox::Namespace;

/// Measures what it costs to tell the kernel; says `figure NAME VALUE` lines
#[derive(Parser)]
enum Part {
    /// The first table of a process, into an empty kernel and over what is there
    Starts,
    /// One pod or policy more, less or other
    Changes,
    /// Leases, with none and with many there
    Grants {
        /// Up to how many there are
        #[arg(long, default_value_t = 1_000_000)]
        most: usize,
    },
    /// Answers that open something while a policy of 10,000 pods is replaced ten times per second
    Held {
        /// How long it is replaced
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// Answers that open something, one look-up after the other: their CPU time
    Learned {
        /// How many look-ups of two answers each, one by one, then eight at once, then with no room left
        #[arg(long, default_value_t = 50_000)]
        lookups: u32,
    },
}

fn main() -> Result<()> {
    let part = Part::parse();
    namewall_sandbox::ensure_rights()?;
    match part {
        Part::Starts => starts::measure(),
        Part::Changes => changes::measure(),
        Part::Grants { most } => grants::measure(most),
        Part::Held { seconds } => held::measure(seconds),
        Part::Learned { lookups } => learned::measure(lookups),
    }
}

/// Which pods a table judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// Every pod of the cluster: more than a node ever has, and as hard as it gets.
    All,
    /// Those of one node, as in a real cluster.
    Node,
}

impl Judged {
    pub(crate) const BOTH: [Self; 2] = [Self::All, Self::Node];
    /// The node in question.
    const NODE: NodeId = NodeId(7);

    /// The name of its figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Node => "node",
        }
    }

    pub(crate) fn scope(self) -> Scope {
        Scope { node: (self == Self::Node).then_some(Self::NODE), ..Scope::default() }
    }

    pub(crate) fn open(self, namespace: &Namespace) -> Result<SingleThreaded<Nft>> {
        // Nothing has to make room for what is measured.
        let all = 2_000_000;
        let bounds = Bounds { addresses_a_name: all, names_a_pattern: all, leases: all };
        let nft = namespace.enter(|| Nft::open(Settings::default()))??;
        Ok(SingleThreaded::new(nft, self.scope()).with_bounds(bounds))
    }
}

/// The size the goals speak of: 10,000 pods, 1,000 policies.
pub(crate) fn snapshot() -> Snapshot {
    Cluster::default().lowered().snapshot
}
