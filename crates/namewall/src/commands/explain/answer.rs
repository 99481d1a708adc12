//! The answer to one question, before it is printed.

use anyhow::Result;
use namewall_dataplane::Tunnels;
use namewall_policy::addr::Cidr;
use namewall_policy::ask::{Host, Route, Target, World};
use namewall_policy::domain::DomainName;
use namewall_policy::explain::{Explanation, RuleStep, describe_reason, explain_case};
use namewall_policy::flow::Endpoint;
use namewall_policy::lease::Learned;
use namewall_policy::model::PolicyId;
use namewall_policy::port::{Protocol, Traffic, TransportPort, usable_ports};
use namewall_policy::reach::Reachable;
use namewall_policy::unknown::{Case, Conditions, Described, Outlook, guessed_pod_network};
use namewall_policy::{Condition, Dependence, Flow, Prediction, Reason, Snapshot, Verdict};
use std::collections::BTreeMap;
use std::net::SocketAddr;

const NO_ENDPOINT: &str = "the Service has no endpoint to send it to";

/// What is asked.
pub(crate) struct ConnectionQuestion<'a> {
    pub(crate) from: &'a Host,
    pub(crate) to: &'a Target,
}

pub(crate) struct Answer<'a> {
    pub(super) world: World<'a>,
    pub(super) question: String,
    pub(crate) verdict: Prediction,
    /// What the verdict depends on, where the input does not determine it; where no port was asked for, what each
    /// of the ports that depend on something depends on.
    pub(super) depends_on: Vec<Condition>,
    /// What is open, where no port was asked for.
    pub(super) open: Option<Reachable>,
    pub(super) routes: Vec<RouteStory>,
    /// The name that is asked for, and the name that an ExternalName Service makes of it.
    pub(super) alias: Option<(DomainName, DomainName)>,
    /// Why a live firewall denies what the policies alone would not.
    pub(super) denied_live: Option<String>,
}

/// One way of a question, and how it is judged: of each route, a way for each address family.
pub(super) struct RouteStory {
    pub(super) label: Option<String>,
    /// Told where a route has ways of both families.
    pub(super) family: Option<&'static str>,
    pub(super) prediction: Prediction,
    pub(super) depends_on: Vec<Condition>,
    /// The case that settles the prediction; of one that depends on something, an open case and a closed one.
    pub(super) stories: Vec<Story>,
}

/// The walk of one connection.
pub(super) struct Story {
    pub(super) flow: Flow,
    pub(super) explanation: Explanation,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(world: World<'a>, asked: &ConnectionQuestion<'_>) -> Result<Self> {
        let mut routes = world.routes(asked.from, asked.to)?;
        let any_port = asked.to.port.is_none() && asked.to.protocol.has_ports();
        let settled = any_port.then(|| settle_ports(&world, &mut routes));
        let verdict = world.predict(&routes);
        let (open, conditions) = settled.unzip();
        let depends_on = match conditions {
            Some(conditions) if verdict != Prediction::Depends || !conditions.is_empty() => conditions,
            _ => world.depends_on(&routes).into_iter().map(Condition::from).collect(),
        };
        let routes = routes.into_iter().flat_map(|route| route_stories(&world, route)).collect();
        let question = format!("{} -> {}", asked.from, asked.to);
        Ok(Self { world, question, verdict, depends_on, open, routes, alias: None, denied_live: None })
    }

    /// A live firewall has no lease for the name that is asked for: what only a rule by name allows is denied.
    pub(crate) fn without_lease(mut self, asked: &ConnectionQuestion<'_>) -> Result<Self> {
        let Host::Name(name) = &asked.to.host else { return Ok(self) };
        let is_by_name = self.verdict != Prediction::Deny && self.has_rule_for(name);
        if is_by_name && !self.world.is_open_without_name(asked.from, asked.to)? {
            self.verdict = Prediction::Deny;
            self.depends_on.clear();
            let from = asked.from;
            self.denied_live = Some(format!(
                "no address of {name} is open now: it has not been looked up, or its lease has ended. A rule allows \
                 the name, so the next lookup by {from} opens it"
            ));
        }
        Ok(self)
    }

    /// Whether a rule for the source has a pattern of the name.
    fn has_rule_for(&self, name: &DomainName) -> bool {
        let flows = self.routes.iter().flat_map(|route| &route.stories).map(|story| &story.flow);
        flows.into_iter().any(|flow| {
            let asked_by = flow.from.address;
            let looked_up = Learned { name: name.clone(), addresses: Vec::new(), expiry: self.world.now, asked_by };
            !looked_up.patterns(self.world.program).is_empty()
        })
    }

    /// A live firewall closes the addresses of its node's pod network that no pod has: a pod there is not known yet.
    pub(crate) fn with_closed(mut self, closed: &[Cidr]) -> Self {
        let is_unknown = |end: &Endpoint| {
            let is_nobody = end.workload.is_none() && end.node.is_none();
            end.address.filter(|address| is_nobody && closed.iter().any(|block| block.contains(*address)))
        };
        let flows = self.routes.iter().flat_map(|route| &route.stories).map(|story| &story.flow);
        let found = flows.into_iter().find_map(|flow| is_unknown(&flow.from).or(is_unknown(&flow.to)));
        if let Some(address) = found {
            self.verdict = Prediction::Deny;
            self.depends_on.clear();
            self.open = None;
            self.denied_live =
                Some(format!("{address} is an address of this node's pod network that no pod is known to have"));
        }
        self
    }

    /// Denies connections to the ports at which the running agent serves the questions that it intercepts: only
    /// intercepted questions may arrive there.
    pub(crate) fn with_dns_ports(mut self, ports: &[SocketAddr]) -> Self {
        let is_there = |flow: &&Flow| {
            let asked_over = [Protocol::Udp, Protocol::Tcp].contains(&flow.protocol);
            let to = flow.to.address.map(|address| SocketAddr::new(address, flow.port));
            asked_over && flow.from.address != flow.to.address && to.is_some_and(|to| ports.contains(&to))
        };
        if let Some(open) = &mut self.open {
            let mut own = Traffic::none();
            let flows = self.routes.iter().flat_map(|route| &route.stories).map(|story| &story.flow);
            for to in flows.filter(|flow| flow.via.is_none()).filter_map(|flow| flow.to.address) {
                for port in ports.iter().filter(|at| at.ip() == to).map(SocketAddr::port) {
                    own.insert(Protocol::Udp, port, port);
                    own.insert(Protocol::Tcp, port, port);
                }
            }
            *open = open.limit(&Traffic::all().subtract(&own));
            return self;
        }
        let flows = self.routes.iter().flat_map(|route| &route.stories).map(|story| &story.flow);
        if let Some(flow) = flows.into_iter().find(is_there) {
            let port = flow.port;
            self.verdict = Prediction::Deny;
            self.depends_on.clear();
            self.denied_live = Some(format!(
                "port {port} there is namewall's own: questions to DNS servers are taken to it, and nothing else \
                 reaches it"
            ));
        }
        self
    }

    /// Denies connections of pods to the tunnel endpoints of nodes, which the running agent knows.
    pub(crate) fn with_tunnels(mut self, tunnels: &Tunnels) -> Self {
        let World { program, .. } = self.world;
        let leads_there = |flow: &&Flow| {
            let is_pod = flow.from.workload.is_some_and(|pod| !program.member(pod).host_network);
            let is_node = flow.to.address.is_some_and(|address| program.is_node_address(address));
            is_node && (is_pod || flow.via.is_some())
        };
        let flows = || self.routes.iter().flat_map(|route| &route.stories).map(|story| &story.flow).filter(leads_there);
        if let Some(open) = &self.open {
            if flows().next().is_some() {
                let mut closed = Traffic::none();
                tunnels.ports.iter().for_each(|port| closed.insert(Protocol::Udp, *port, *port));
                self.open = Some(open.limit(&Traffic::all().subtract(&closed)));
            }
            return self;
        }
        let is_closed = flows().any(|flow| tunnels.has(flow.protocol, flow.port));
        if is_closed {
            self.verdict = Prediction::Deny;
            self.depends_on.clear();
            self.denied_live = Some(
                "it is a port or a protocol of nodes' tunnels: whatever policies say, no pod puts packets there"
                    .to_owned(),
            );
        }
        self
    }

    pub(super) fn reason(&self) -> String {
        if let Some(reason) = &self.denied_live {
            return reason.clone();
        }
        if self.verdict == Prediction::Depends {
            return Described::join(&self.describe(&self.depends_on));
        }
        let decisive = self.routes.iter().find(|route| route.prediction == self.verdict);
        match decisive.or(self.routes.first()) {
            Some(route) => self.route_reason(route),
            None => NO_ENDPOINT.to_owned(),
        }
    }

    pub(super) fn route_reason(&self, route: &RouteStory) -> String {
        match (route.prediction, route.stories.first()) {
            (Prediction::Depends, _) => Described::join(&self.describe(&route.depends_on)),
            (_, Some(story)) => self.reason_of(&story.explanation.decision.reason, &story.flow),
            (_, None) => NO_ENDPOINT.to_owned(),
        }
    }

    pub(super) fn describe(&self, conditions: &[Condition]) -> Vec<Described> {
        let World { snapshot, program, .. } = self.world;
        conditions.iter().map(|one| one.describe(snapshot, program)).collect()
    }

    fn reason_of(&self, reason: &Reason, flow: &Flow) -> String {
        describe_reason(self.world.snapshot, self.world.program, reason, flow)
    }

    pub(super) fn would_deny(&self) -> Option<String> {
        let stories = self.routes.iter().flat_map(|route| &route.stories);
        let audited = |story: &'_ Story| story.explanation.decision.would_deny;
        stories.into_iter().find_map(|story| Some(self.reason_of(&audited(story)?, &story.flow)))
    }

    /// What would settle an answer that depends on where pods live. A guess is a hint and decides nothing.
    pub(super) fn hint(&self) -> Option<String> {
        let helps = self.depends_on.iter().any(is_of_pod);
        helps.then(|| pod_network_hint(self.world.snapshot))
    }

    pub(super) fn policy_place(&self, id: PolicyId) -> String {
        let policy = self.world.snapshot.policy(id);
        policy.source.as_ref().map_or_else(|| policy.id.to_string(), |source| format!("{} ({source})", policy.id))
    }

    pub(super) fn rule_source(&self, step: &RuleStep) -> Option<&namewall_policy::Source> {
        let rule = self.world.program.rule(step.rule);
        self.world.snapshot.policy(rule.policy).rules(rule.direction)[rule.index as usize].source.as_ref()
    }
}

/// Whether it is about the address that a pod gets.
fn is_of_pod(condition: &Condition) -> bool {
    matches!(&condition.on, Dependence::Address { end, .. } if end.workload.is_some())
}

/// What to say so that answers no longer depend on where pods live.
pub(crate) fn pod_network_hint(snapshot: &Snapshot) -> String {
    match guessed_pod_network(snapshot) {
        Some(guess) => {
            format!("pods that have addresses are in {guess}; if all are, say so with --pod-network {guess}")
        }
        None => "say where pods get their addresses: --pod-network CIDR, or Nodes with podCIDRs".to_owned(),
    }
}

/// A way for each family that the route has flows of. A route without flows leads nowhere.
fn route_stories(world: &World<'_>, route: Route) -> Vec<RouteStory> {
    if route.flows.is_empty() {
        let (prediction, stories, depends_on) = (Prediction::Deny, Vec::new(), Vec::new());
        return vec![RouteStory { label: route.label, family: None, prediction, depends_on, stories }];
    }
    let is_v4 = |flow: &Flow| flow.to.address.or(flow.from.address).is_none_or(|address| address.is_ipv4());
    let (v4, v6): (Vec<Flow>, Vec<Flow>) = route.flows.into_iter().partition(is_v4);
    let both = !v4.is_empty() && !v6.is_empty();
    let families = [(v4, "IPv4"), (v6, "IPv6")].into_iter().filter(|(flows, _)| !flows.is_empty());
    families
        .map(|(flows, family)| {
            let best = best_outlook(world, &flows);
            let story = |case: &Case| Story {
                flow: case.flow.clone(),
                explanation: explain_case(world.snapshot, &world.reach(), case),
            };
            let cases: &[&Option<Case>] = match best.prediction {
                Prediction::Allow => &[&best.allowed],
                Prediction::Deny => &[&best.denied],
                Prediction::Depends => &[&best.allowed, &best.denied],
            };
            RouteStory {
                label: route.label.clone(),
                family: both.then_some(family),
                prediction: best.prediction,
                stories: cases.iter().copied().flatten().map(story).collect(),
                depends_on: best.depends_on.into_iter().map(Condition::from).collect(),
            }
        })
        .collect()
}

/// Of the flow that opens the way, or of the first.
fn best_outlook(world: &World<'_>, flows: &[Flow]) -> Outlook {
    let reach = world.reach();
    let mut outlooks: Vec<Outlook> = flows.iter().map(|flow| reach.predict(flow)).collect();
    let find = |wanted: Prediction| outlooks.iter().position(|outlook| outlook.prediction == wanted);
    let at = find(Prediction::Allow).or(find(Prediction::Depends)).unwrap_or(0);
    outlooks.swap_remove(at)
}

/// The verdict of a story.
pub(super) fn verdict_of(story: &Story) -> Verdict {
    story.explanation.decision.verdict
}

/// Without a port: which are open, what those that depend on something depend on, and one of them to tell the story
/// of.
fn settle_ports(world: &World<'_>, routes: &mut [Route]) -> (Reachable, Vec<Condition>) {
    let reach = world.reach();
    let mut everywhere: Option<Reachable> = None;
    // A Service is asked at its own ports; each is open only if every backend behind it is.
    let mut ports: BTreeMap<TransportPort, Prediction> = BTreeMap::new();
    for route in routes.iter() {
        if let Some(port) = service_port(route) {
            let prediction = world.predict_route(route);
            let worst = ports.entry(port).or_insert(prediction);
            *worst = worse(*worst, prediction);
        } else {
            // A name must be open at each of its addresses.
            let open = route.flows.iter().map(|flow| reach.between(&flow.from, &flow.to));
            let here = open.reduce(|all, more| all.union(&more)).unwrap_or_default();
            everywhere = Some(everywhere.map_or(here.clone(), |open| open.intersect(&here)));
        }
    }
    let open = ports.iter().map(|(port, prediction)| only(*port, *prediction));
    let open = open.fold(everywhere.unwrap_or_default(), |all, port| all.union(&port));
    let depends = open.depends();
    let mut conditions = Conditions::of(&depends);
    for route in routes.iter() {
        let port = service_port(route).map(|port| only(port, Prediction::Allow).open.intersect(&depends));
        for flow in &route.flows {
            match port.as_ref().filter(|port| !port.is_none()) {
                Some(port) => reach.predict(flow).depends_on.into_iter().for_each(|on| conditions.add(on, port)),
                None if flow.port == 0 => reach.find_conditions(&flow.from, &flow.to, &mut conditions),
                None => {}
            }
        }
    }
    let conditions = conditions.list();
    let usual = TransportPort { protocol: Protocol::Tcp, port: 80 };
    let TransportPort { protocol, port } = example(&open.open).or(example(&open.possible)).unwrap_or(usual);
    for flow in routes.iter_mut().flat_map(|route| &mut route.flows).filter(|flow| flow.port == 0) {
        (flow.protocol, flow.port) = (protocol, port);
    }
    (open, conditions)
}

/// The port at which a Service is asked, if the route leads through one.
fn service_port(route: &Route) -> Option<TransportPort> {
    Some(TransportPort { protocol: route.flows.first()?.protocol, port: route.service_port? })
}

fn worse(one: Prediction, other: Prediction) -> Prediction {
    match (one, other) {
        (Prediction::Deny, _) | (_, Prediction::Deny) => Prediction::Deny,
        (Prediction::Depends, _) | (_, Prediction::Depends) => Prediction::Depends,
        (Prediction::Allow, Prediction::Allow) => Prediction::Allow,
    }
}

/// One port, as it is predicted.
fn only(port: TransportPort, prediction: Prediction) -> Reachable {
    let mut one = Traffic::none();
    one.insert(port.protocol, port.port, port.port);
    match prediction {
        Prediction::Allow => Reachable::exactly(one),
        Prediction::Depends => Reachable { open: Traffic::none(), possible: one },
        Prediction::Deny => Reachable::default(),
    }
}

/// The first port that can be listened at.
fn example(traffic: &Traffic) -> Option<TransportPort> {
    let first = |protocol: Protocol| {
        let ports = traffic.ports(protocol)?.intersect(&usable_ports());
        Some(TransportPort { protocol, port: ports.ranges().first()?.0 })
    };
    Protocol::WITH_PORTS.into_iter().find_map(first)
}
