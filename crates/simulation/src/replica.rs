//! A replica of the controller: it seeks to lead, and does its turns.

use namewall_cluster::Key;
use namewall_cluster::kinds::{self, Component};
use namewall_cluster::resolver::Settings as ResolverSettings;
use namewall_controller::testing::FakeDns;
use namewall_controller::{Controller, Settings, Whose};
use namewall_kubernetes::{Candidate, Environment, Leadership, Watch};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TURN: Duration = Duration::from_millis(100);
/// Whom controllers ask. Nodes and pods ask another server.
pub const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), 53);
const NAMESPACE: &str = "namewall";

#[derive(Clone, Debug)]
pub struct Replica {
    pub identity: String,
    /// Whether it acts as the leader. A replica that was killed says what it did last.
    pub leads: Arc<AtomicBool>,
    /// It acts as the leader although it may not be: one that was slow to notice that another leads.
    pub usurps: Arc<AtomicBool>,
}

impl Replica {
    pub(crate) async fn run(self, environment: Environment, dns: FakeDns) {
        let watch = Watch::start_in(&environment, kinds::watched(Component::Controller));
        while !watch.is_known() {
            environment.tasks.sleep(TURN).await;
        }
        let candidate =
            Candidate { namespace: NAMESPACE.to_owned(), name: "controller".to_owned(), identity: self.identity };
        let leadership = Leadership::seek(&environment, candidate);
        let settings = Settings {
            namespace: NAMESPACE.to_owned(),
            other_namespaces: Vec::new(),
            whose: Whose::EgressFirewalls,
            resolvers: vec![RESOLVER],
            service: Some(Key { namespace: "kube-system".into(), name: "kube-dns".into() }),
            resolver: ResolverSettings::default(),
        };
        let tasks = environment.tasks.clone();
        let mut controller = Controller::new(environment, watch, Box::new(dns.lookups()), settings);
        loop {
            let leads = leadership.is_held() || self.usurps.load(Ordering::Relaxed);
            self.leads.store(leads, Ordering::Relaxed);
            controller.turn(leads).await;
            tasks.sleep(TURN).await;
        }
    }
}
