//! Who a client's question goes to, what comes back, and what is learned of it:
//! as the agent on the client's node does it.

use super::Player;
use crate::lookup::{ANSWER_TIMEOUT, Lookup, Resolved};
use crate::settings::{Going, OnLearnTimeout};
use crate::zones::{Leasable, Message, Name, Rcode, RecordType, Reply, Sender, Transport};
use namewall_policy::Prediction;
use namewall_policy::ask::{Host, Target, World};
use namewall_policy::lease::Learned;
use namewall_policy::port::Protocol;
use namewall_policy::unknown::Described;
use std::net::IpAddr;
use std::time::Duration;

const DNS: u16 = 53;
/// Within this time the kernel notices that an agent was killed; when exactly nobody can tell.
const NOTICED: Duration = Duration::from_secs(3);

/// An answer that came, and what may be leased of it.
struct Came {
    message: Message,
    leasable: Leasable,
    /// For whom the agent learns from it; None if it did not come through it.
    client: Option<IpAddr>,
}

/// The way of a question.
struct LookupPath {
    /// Who asks, if the agent takes the question.
    client: Option<IpAddr>,
    /// In this order, until one answers.
    servers: Vec<IpAddr>,
}

impl Player<'_> {
    /// One after another, as a client with a search list does, until one has something.
    pub(super) fn search(&mut self, lookup: &Lookup, name: &Name) -> Result<Resolved, String> {
        let longer: Vec<Name> = lookup.search.iter().filter_map(|suffix| name.followed_by(suffix)).collect();
        let mut last = Resolved::default();
        for name in longer.iter().chain([name]) {
            let (resolved, is_empty) = self.look_up(lookup, name)?;
            last = resolved;
            if !(is_empty && matches!(last.rcode, Some(Rcode::NOERROR | Rcode::NXDOMAIN))) {
                break;
            }
        }
        Ok(last)
    }

    /// What comes of one question, and whether it comes to nothing.
    fn look_up(&mut self, lookup: &Lookup, name: &Name) -> Result<(Resolved, bool), String> {
        let mut came = self.ask(lookup, name, lookup.via.unwrap_or(Transport::Udp))?;
        if lookup.via.is_none() && came.as_ref().is_some_and(|came| came.message.truncated) {
            came = self.ask(lookup, name, Transport::Tcp)?;
        }
        let Some(came) = came else {
            return Ok((Resolved { leased: Some(Vec::new()), refused: Some(Vec::new()), ..Resolved::default() }, true));
        };
        let (leased, refused) = came.client.map(|client| self.learn(client, &came.leasable)).unwrap_or_default();
        let too_late = !leased.is_empty() && self.agent.slow_kernel > self.agent.hold_limit;
        if too_late && self.agent.on_learn_timeout == OnLearnTimeout::Servfail {
            let rcode = Some(Rcode::SERVFAIL);
            return Ok((
                Resolved { rcode, leased: Some(leased), refused: Some(refused), ..Resolved::default() },
                false,
            ));
        }
        let addresses: Vec<IpAddr> = came.message.addresses().collect();
        if !addresses.is_empty() {
            self.remember(name, lookup.kind, &addresses);
        }
        let rcode = Some(came.message.rcode);
        let resolved = Resolved { rcode, addresses, leased: Some(leased), refused: Some(refused), reached: None };
        Ok((resolved, came.message.answer.is_empty()))
    }

    /// The first answer that is one. What is forged, late or no message is none.
    fn ask(&mut self, lookup: &Lookup, name: &Name, transport: Transport) -> Result<Option<Came>, String> {
        let Some(meant) = lookup.server.or(self.zones.default_server()) else { return Ok(None) };
        if self.agent.gone.is_some_and(|(how, at)| how == Going::Kill && self.now < at + NOTICED) {
            return Err("nobody can tell who answers: the kernel may take 3 s to notice a killed agent".to_owned());
        }
        let protocol = match transport {
            Transport::Udp => Protocol::Udp,
            Transport::Tcp => Protocol::Tcp,
        };
        self.state();
        let target = Target { host: Host::Address(meant), protocol, port: Some(DNS) };
        let Some(LookupPath { client, servers }) = self.way(&lookup.from, meant, &target)? else { return Ok(None) };
        let id = (self.asked as u16).wrapping_mul(0x6487).wrapping_add(lookup.kind.0);
        let query = Message { edns: lookup.edns, ..Message::query(id, name.clone(), lookup.kind) }.write();
        let mut last = None;
        for server in servers {
            let Some((message, leasable)) = self.first_reply(server, &query, transport) else { continue };
            let gave_up = matches!(message.rcode, Rcode::FORMERR | Rcode::SERVFAIL | Rcode::NOTIMP | Rcode::REFUSED);
            let came = Came { message, leasable, client };
            if !gave_up {
                return Ok(Some(came));
            }
            // Another may know better; the last one's word is passed on.
            last = Some(came);
        }
        Ok(last)
    }

    /// The first message of the server itself that comes in time and answers the question.
    pub(super) fn first_reply(
        &mut self,
        server: IpAddr,
        query: &[u8],
        transport: Transport,
    ) -> Option<(Message, Leasable)> {
        let in_time = |reply: &Reply| reply.sender == Sender::Server && reply.delay < ANSWER_TIMEOUT;
        let replies = self.zones.respond(server, query, transport);
        replies.into_iter().filter(in_time).find_map(|reply| {
            let leasable = self.reads.leasable(query, &reply.bytes)?;
            Some((Message::read(&reply.bytes).ok()?, leasable))
        })
    }

    /// Where a question goes that is meant for a server; None if the client may not ask it.
    fn way(&self, from: &Host, meant: IpAddr, target: &Target) -> Result<Option<LookupPath>, String> {
        let Some(world) = self.world() else { return Ok(None) };
        let routes = world.routes(from, target).map_err(|error| error.to_string())?;
        match world.predict(&routes) {
            Prediction::Allow => {}
            Prediction::Deny => return Ok(None),
            Prediction::Depends => {
                let conditions = Described::join(&world.describe(world.depends_on(&routes)));
                return Err(format!("nobody can tell whether {from} may ask {meant}; it depends: {conditions}"));
            }
        }
        let sources = routes.iter().flat_map(|route| &route.flows).filter_map(|flow| flow.from.address);
        let client = sources.into_iter().find(|source| source.is_ipv4() == meant.is_ipv4());
        let client = client.filter(|&client| self.is_taken(&world, client, meant));
        let servers = if client.is_some() { self.asked_for(meant) } else { vec![meant] };
        let served = |server| self.served_at(&world, server, target.protocol);
        Ok(Some(LookupPath { client, servers: servers.into_iter().filter_map(served).collect() }))
    }

    /// Whether the agent takes a question: of a pod, to anybody but another pod. A pod that answers
    /// for a server the agent asks would only be asked itself.
    fn is_taken(&self, world: &World<'_>, client: IpAddr, meant: IpAddr) -> bool {
        let is_pod = |address| world.program.class_at(address).is_some();
        let mut asked = self.upstreams().into_iter().chain(self.trusted());
        let answers = |server| {
            let resolvers = world.program.resolvers.iter().filter(|resolver| resolver.address == server);
            server == client || resolvers.into_iter().any(|resolver| resolver.is_answered_by(client))
        };
        self.agent.gone.is_none() && is_pod(client) && !is_pod(meant) && !asked.any(answers)
    }

    pub(super) fn upstreams(&self) -> Vec<IpAddr> {
        self.agent.upstreams.clone().unwrap_or_else(|| self.zones.default_server().into_iter().collect())
    }

    /// Who may be meant.
    fn trusted(&self) -> Vec<IpAddr> {
        let all = || self.zones.servers().map(|(address, _)| address).collect();
        self.agent.upstreams.clone().unwrap_or_else(all)
    }

    /// Who the agent asks, in this order: who was meant, if that one is trusted, and the upstreams
    /// in its place if it is not, or behind it if it is one of them.
    fn asked_for(&self, meant: IpAddr) -> Vec<IpAddr> {
        let (upstreams, is_trusted) = (self.upstreams(), self.trusted().contains(&meant));
        match (is_trusted, upstreams.contains(&meant)) {
            (true, false) => vec![meant],
            (false, _) => upstreams,
            (true, true) => {
                let others = upstreams.into_iter().filter(|server| *server != meant);
                std::iter::once(meant).chain(others).collect()
            }
        }
    }

    /// The server itself; of a Service, a backend that is one.
    fn served_at(&self, world: &World<'_>, server: IpAddr, protocol: Protocol) -> Option<IpAddr> {
        let is_server = |address: &IpAddr| self.zones.servers().any(|(known, _)| known == *address);
        let mut resolvers = world.program.resolvers.iter();
        match resolvers.find(|resolver| resolver.address == server && resolver.protocol == protocol) {
            Some(resolver) => resolver.backends.iter().map(|(address, _)| *address).find(is_server),
            None => Some(server).filter(is_server),
        }
    }

    /// The addresses that were leased, and those that never are.
    fn learn(&mut self, client: IpAddr, leasable: &Leasable) -> (Vec<IpAddr>, Vec<IpAddr>) {
        self.state();
        let Some(state) = &self.state else { return Default::default() };
        let (mut leased, mut refused) = (Vec::new(), Vec::new());
        for &(address, ttl) in &leasable.addresses {
            let expiry = self.agent.lifetimes.expiry(ttl, self.now);
            let (name, addresses) = (leasable.name.clone(), vec![address]);
            let learned = Learned { name, addresses, expiry, asked_by: Some(client) };
            if learned.patterns(&state.program).is_empty() {
                self.recent.push(learned);
                continue;
            }
            let is_open = state.never_leased.learn(&state.program, &learned, &mut self.leases).is_empty();
            if is_open { &mut leased } else { &mut refused }.push(address);
        }
        (leased, refused)
    }

    /// A client goes where the newest answer points, in each family.
    fn remember(&mut self, name: &Name, kind: RecordType, addresses: &[IpAddr]) {
        let Some(name) = name.as_domain() else { return };
        let known = self.names.entry(name).or_default();
        known.retain(|address| match kind {
            RecordType::A => address.is_ipv6(),
            RecordType::AAAA => address.is_ipv4(),
            _ => false,
        });
        known.extend(addresses);
    }
}
