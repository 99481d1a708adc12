//! A node: the real `Node` and learner on a data plane in memory, which publish
//! what its pod asks for and open what other nodes have published.

use crate::answer::answer;
use namewall_agent::{
    Clock, Heard, LearnedElsewhere, Learning, Node, NodeSettings, Publishing, Renewal, Renewals, Renewing, Settle,
    Share,
};
use namewall_cluster::Settings;
use namewall_cluster::kinds::{self, Component};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_controller::testing::FakeDns;
use namewall_dataplane::CutEstablished;
use namewall_dataplane::memory::Memory;
use namewall_dataplane::render::Scope;
use namewall_dns::lookup::Found;
use namewall_dns::{Answer, Learn};
use namewall_kubernetes::{Environment, Publisher, Watch};
use namewall_policy::domain::DomainName;
use namewall_policy::lease::{Bounds, NeverLeased};
use namewall_policy::{Instant, compile};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// How often the node looks what has changed.
const TICK: Duration = Duration::from_millis(250);
/// A pod asks for a name in one of so many ticks.
const ASKS_EVERY: u64 = 20;

/// Where it is, who asks there, and for what.
#[derive(Clone, Debug)]
pub struct SimulatedNode {
    pub name: String,
    pub pod: IpAddr,
    /// The names that its pod asks for, each with its last dot.
    pub asks_for: Vec<String>,
    /// What is in its kernel. It outlives the process.
    pub memory: Memory,
}

impl SimulatedNode {
    /// The names and addresses that are open there.
    pub fn open(&self, now: Instant) -> BTreeSet<(String, IpAddr)> {
        let leases = self.memory.leases();
        leases.into_iter().filter(|one| one.expiry > now).map(|one| (one.name.to_string(), one.address)).collect()
    }

    /// Its agent, until the process is killed.
    pub(crate) async fn run(self, environment: Environment, dns: FakeDns) {
        let mut agent = Running::start(&self, &environment, &dns);
        let Environment { tasks, random, .. } = environment;
        loop {
            agent.follow(&self.name);
            agent.renew();
            if random.number() % ASKS_EVERY == 0
                && let Some(name) = self.asks_for.get((random.number() % self.asks_for.len().max(1) as u64) as usize)
            {
                agent.ask(self.pod, name, &dns.resolve(name));
            }
            tasks.sleep(TICK).await;
        }
    }
}

/// The parts of an agent.
struct Running {
    node: Node<Memory>,
    watch: Watch,
    publisher: Arc<Publisher>,
    elsewhere: LearnedElsewhere,
    renewals: Renewals,
}

/// Publishes, and lets answers go at once: nobody can wait in a single thread.
#[derive(Debug)]
struct WithoutHold(Publishing);

impl Share for WithoutHold {
    fn note(&self, client: Option<IpAddr>, name: &DomainName, addresses: &[(IpAddr, Duration)]) {
        self.0.note(client, name, addresses);
    }

    fn finish(&self) {}
}

impl Running {
    fn start(place: &SimulatedNode, environment: &Environment, dns: &FakeDns) -> Self {
        let clock: Arc<dyn Clock> = environment.clock.clone();
        let watch = Watch::start_in(environment, kinds::watched(Component::Agent));
        let settings = NodeSettings {
            scope: Scope::default(),
            cut: CutEstablished::default(),
            settle: Settle::AT_ONCE,
            bounds: Bounds::default(),
            learning: Learning::default(),
            never_leased: NeverLeased::new("cluster.local".parse().expect("it is a name")),
        };
        let node = Node::new(place.memory.clone(), settings, clock.clone());
        let publisher = watch.publisher(ResolverSettings::default()).within(vec!["namewall".to_owned()]);
        let publisher = Arc::new(publisher);
        node.learner().share_with(Arc::new(WithoutHold(Publishing::new(publisher.clone()))));
        let renewals = Renewals::new(Box::new(dns.lookups()));
        Self { node, watch, publisher, elsewhere: LearnedElsewhere::new(clock), renewals }
    }

    /// Takes what has changed in the cluster, as the loop of an agent does.
    fn follow(&mut self, name: &str) {
        if self.watch.has_changed() {
            let snapshot = self.watch.read(&Settings::default()).lowered.snapshot;
            let (program, _) = compile(&snapshot);
            self.node.scope_mut().node = snapshot.node_named(name);
            let has_new_rules = !Arc::ptr_eq(&program.policies, &self.node.program().policies);
            self.node.enforce(&program).expect("memory refuses nothing");
            if has_new_rules {
                self.open(&self.elsewhere.unexpired());
            }
            return;
        }
        let heard = self.elsewhere.take(self.watch.new_names());
        self.open(&heard);
    }

    /// Looks up what nobody publishes anew.
    fn renew(&mut self) {
        let servers = vec![([10, 96, 0, 10], 53).into()];
        let learner = self.node.learner().clone();
        let is_blocked = self.publisher.blocked().is_some();
        let renewing = Renewing { published: &self.elsewhere, servers, is_blocked, rules: &*learner };
        let Renewal { heard, kept, to_publish } = self.renewals.turn(&renewing);
        self.open(&heard);
        learner.keep(&kept).expect("memory refuses nothing");
        learner.publish(&to_publish);
    }

    fn open(&self, heard: &[Heard]) {
        self.node.learner().hear(heard).expect("memory refuses nothing");
    }

    /// A pod asks for a name, and the answer is learned.
    fn ask(&self, pod: IpAddr, name: &str, found: &Found) {
        let Ok(addresses) = found else { return };
        let v4 = |(address, ttl): &(IpAddr, u32)| match address {
            IpAddr::V4(address) => Some((*address, *ttl)),
            IpAddr::V6(_) => None,
        };
        let addresses: Vec<(Ipv4Addr, u32)> = addresses.iter().filter_map(v4).collect();
        let (bytes, mut batch) = (answer(name, &addresses), Default::default());
        self.node.learner().learn(&Answer { client: pod, upstream: None, bytes: &bytes }, &mut batch);
        self.node.learner().commit(&mut batch).expect("memory refuses nothing");
    }
}
