//! A Corefile that is served: its server blocks, and which of them a question is for.

use crate::cache::Cache;
use crate::cluster::ClusterNames;
use crate::exchange::{BlockAt, Exchange, Unserved};
use crate::forward::Forwarding;
use crate::geoip::GeoDatabase;
use crate::list_files::Lists;
use crate::local::Local;
use crate::loops::LoopGuard;
use crate::message::{Identities, UNKNOWN_CLIENTS, is_under};
use crate::names::Names;
use crate::reply::without_recursion;
use crate::report::Observers;
use crate::rewrite::Rewrite;
use crate::rpz::Policy;
use crate::rules::List;
use crate::shape::Shape;
use crate::tell::Teller;
use crate::views::Arrived;
use namewall_corefile::{Acl, Dns64, DnsNameResolver, Edns0, FlagChange, Scheme, View, Zone};
use namewall_dns::wire::{Question, Rcode, reply as plain};
use namewall_dns::{Asked, Chain, Failure, Passing, Step};
use namewall_policy::domain::DomainName;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What serves a Corefile. It is a [`Chain`] for the DNS server.
#[derive(Clone, Debug)]
pub struct Service(pub(crate) Arc<Inside>);

/// What all questions of a Corefile share.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) blocks: Vec<Block>,
    /// The lists that expressions ask.
    pub(crate) lists: Lists,
    pub(crate) teller: Arc<Teller>,
    pub(crate) identities: Arc<dyn Identities>,
}

/// A server block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) keys: Vec<(Zone, u16)>,
    /// Those of its ports that clients reach over TLS or HTTPS.
    pub(crate) encrypted: Vec<(u16, Scheme)>,
    /// The addresses it is served at; all, if there are none.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) fields: Vec<Edns0>,
    pub(crate) lists: Vec<List>,
    pub(crate) debug_suffixes: Vec<DomainName>,
    pub(crate) local: Local,
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) forwards: Vec<Forwarding>,
    pub(crate) acls: Vec<Acl>,
    pub(crate) rewrites: Vec<Rewrite>,
    /// In the order in which they count.
    pub(crate) policies: Vec<Policy>,
    /// Changes of the flags of queries.
    pub(crate) query_flags: Vec<FlagChange>,
    pub(crate) dns64: Option<Dns64>,
    pub(crate) shape: Shape,
    /// Which questions it is for; all without one.
    pub(crate) view: Option<View>,
    /// Whether addresses of answers change places.
    pub(crate) balances: bool,
    /// One for each key, if loops are looked for.
    pub(crate) loops: Vec<Arc<LoopGuard>>,
    /// Names of the cluster, if the block says which they are.
    pub(crate) cluster: Option<ClusterNames>,
    /// Where clients are.
    pub(crate) geoip: Vec<GeoDatabase>,
    /// Whether rules or logs look at what clients asked before.
    pub(crate) counts_clients: bool,
    /// Whether it matters which pods clients are.
    pub(crate) looks_at_clients: bool,
    pub(crate) observers: Observers,
    /// Who keeps the addresses of names.
    pub(crate) names: Option<(DnsNameResolver, Arc<dyn Names>)>,
}

impl Chain for Service {
    fn query(&self, asked: &Asked<'_>) -> Step {
        match Exchange::begin(&self.0, asked) {
            Ok(mut exchange) => {
                exchange.count_client();
                exchange.decide()
            }
            Err(unserved) => Step::Reply(without_recursion(plain::failure(asked.query, unserved.rcode()))),
        }
    }

    fn failed(&self, asked: &Asked<'_>, failure: Failure<'_>) -> Passing {
        Passing::Instead(match Exchange::begin(&self.0, asked) {
            Ok(exchange) => exchange.fail(failure),
            Err(_) => without_recursion(plain::failure(asked.query, failure.rcode())),
        })
    }
}

impl Service {
    /// Waits until policy zones have been transferred or cannot be, but not longer than this.
    pub fn wait_for_policies(&self, limit: Duration) {
        let until = Instant::now() + limit;
        for policy in self.0.blocks.iter().flat_map(|block| &block.policies) {
            while !policy.is_settled() {
                if Instant::now() >= until {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Unserved {
    fn rcode(&self) -> Rcode {
        match self {
            Self::Unreadable => Rcode::FORM_ERR,
            Self::NoBlock(_) => Rcode::REFUSED,
        }
    }
}

impl Block {
    /// How clients reach a port of the block.
    pub(crate) fn scheme(&self, port: u16) -> Scheme {
        self.encrypted.iter().find(|(own, _)| *own == port).map_or(Scheme::Dns, |(_, scheme)| *scheme)
    }
}

impl Inside {
    /// The block that is for a question: of those whose zones have its name and whose view it is in, the one with the
    /// longest zone. Of two views of one zone the first counts. If it is not known whether the question is in a view, no
    /// other block of the zone takes it: the second value says why it cannot be judged.
    pub(crate) fn find(&self, asked: &Asked<'_>, question: &Question) -> Option<(BlockAt, Option<String>)> {
        #[cfg(test)]
        crate::exchange::tests::FOUND.set(crate::exchange::tests::FOUND.get() + 1);
        let server = asked.server;
        let is_here = |block: &Block| block.addresses.is_empty() || block.addresses.contains(&server.ip());
        let here = self.blocks.iter().enumerate().filter(|(_, block)| is_here(block));
        let keys = here.flat_map(|(at, block)| {
            block.keys.iter().enumerate().map(move |(key, (zone, port))| (BlockAt { block: at, key }, zone, *port))
        });
        let is_seen = |at: &BlockAt| {
            let block = &self.blocks[at.block];
            let arrived = Arrived { inside: self, block, asked, question };
            block.view.as_ref().map_or(Ok(true), |view| arrived.is_seen_by(view))
        };
        let fitting = keys.filter(|(_, zone, port)| *port == server.port() && is_under(&question.name, zone));
        let mut best: Option<(BlockAt, usize, Option<String>)> = None;
        for (at, zone, _) in fitting {
            if best.as_ref().is_some_and(|(_, depth, _)| zone.depth() <= *depth) {
                continue;
            }
            match is_seen(&at) {
                Ok(true) => best = Some((at, zone.depth(), None)),
                Ok(false) => {}
                Err(why) => best = Some((at, zone.depth(), Some(why))),
            }
        }
        let (at, _, unjudged) = best?;
        let block = &self.blocks[at.block];
        let is_unknown = || block.looks_at_clients && !self.identities.are_known();
        Some((at, unjudged.or_else(|| is_unknown().then(|| UNKNOWN_CLIENTS.to_owned()))))
    }
}
