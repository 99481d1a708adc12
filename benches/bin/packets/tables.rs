//! What stands in the node's way: nothing, the least a stateful firewall does,
//! namewall's table, and the list of rules it is not.

use anyhow::{Context, Result};
use namewall_bench::crowd::{self, Crowd, PORT, Pair};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::rule::{Action, End, Rule, Test};
use namewall_dataplane::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use namewall_dataplane::nft::{Nft, Settings, put_table};
use namewall_dataplane::render::Scope;
use namewall_policy::compile;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    /// No table at all.
    Nothing,
    /// Connections are tracked, and all accepted: what the others are held against.
    Tracked,
    /// The same once more: how far two of the same are apart on this machine today.
    TrackedAgain,
    /// So many policies, as namewall has them.
    Namewall(usize),
    /// So many rules, one after another.
    Linear(usize),
}

/// The name of its figures.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Tracked => f.write_str("tracked"),
            Self::TrackedAgain => f.write_str("control"),
            Self::Namewall(policies) => write!(f, "namewall_{policies}"),
            Self::Linear(rules) => write!(f, "linear_{rules}"),
        }
    }
}

impl Filter {
    /// To be called in the node's namespace. What it gives must be kept: the table's owner.
    pub(crate) fn put(self) -> Result<Option<SingleThreaded<Nft>>> {
        match self {
            Self::Nothing => {}
            Self::Tracked | Self::TrackedAgain => put_table("tracked", &forward(Vec::new(), Action::Accept))?,
            Self::Linear(rules) => put_table("linear", &forward(linear(rules), Action::Drop))?,
            Self::Namewall(policies) => {
                let mut nft = SingleThreaded::new(Nft::open(Settings::default())?, Scope::default());
                let (program, _) = compile(&Crowd { policies }.lowered().snapshot);
                nft.replace(&program, namewall_policy::Instant::default())
                    .with_context(|| format!("{policies} policies"))?;
                return Ok(Some(nft));
            }
        }
        Ok(None)
    }
}

/// One chain: what is established is accepted, the rules, the end.
fn forward(rules: Vec<Rule>, end: Action) -> Table {
    let hook = Some(Hook { point: Point::Forward, priority: 0, kind: HookKind::Filter, fallback: Fallback::Accept });
    let established = Rule::new([Test::Established], Action::Accept);
    let rules = [vec![established], rules, vec![Rule::new([], end)]].concat();
    let mut table = Table::default();
    table.chains.insert("forward".to_owned(), Chain { hook, rules, ..Chain::default() });
    table
}

/// Each between two pods; the last two are of those that are measured.
fn linear(rules: usize) -> Vec<Rule> {
    let others = (0..rules.saturating_sub(2)).map(|number| {
        let (app, pod) = (2 + number / 2, number % 2);
        rule(Pair { client: crowd::address(app, pod), server: crowd::address(app, 1 - pod) }, 6)
    });
    others.chain([rule(crowd::TCP, 6), rule(crowd::UDP, 17)]).collect()
}

fn rule(pair: Pair, protocol: u8) -> Rule {
    let is = |end, address: Ipv4Addr| {
        let address = IpAddr::V4(address);
        Test::Between { end, low: address, high: address }
    };
    let tests = [
        is(End::Source, pair.client),
        is(End::Destination, pair.server),
        Test::Protocol(protocol),
        Test::Port { low: PORT, high: PORT },
    ];
    Rule::new(tests, Action::Accept)
}
