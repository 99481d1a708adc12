//! Answers that open something, one look-up after the other: what it takes to learn them and to open what they say, as
//! far as CPU time goes. The DNS server is not part of it.

use anyhow::{Context, Result};
use namewall_agent::{Learner, Learning, Node, NodeSettings, Settle};
use namewall_bench::figures::{figure, quantile};
use namewall_cluster::{Document, Settings as ClusterSettings, lower};
use namewall_dataplane::CutEstablished;
use namewall_dataplane::nft::Settings;
use namewall_dataplane::render::Scope;
use namewall_dns::{Answer, Learn};
use namewall_policy::compile;
use namewall_policy::lease::{Bounds, NeverLeased};
use namewall_sandbox::Namespace;
use nix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const UPSTREAM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), 53);
const CLUSTER: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}},
 spec: {nodeName: n1, containers: [{name: c, image: i}]}, status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: names},
 spec: {tier: Admin, priority: 1, subject: {namespaces: {}},
  egress: [{action: Accept, to: [{domainNames: ['*.example.com']}]}]}}
";
/// Look-ups of one turn with all the load that a loop bears.
const MANY: u32 = 8;

pub(crate) fn measure(lookups: u32) -> Result<()> {
    let (documents, findings) = Document::read_all(&"learned.yaml".into(), CLUSTER);
    anyhow::ensure!(findings.is_empty(), "{findings:?}");
    let (program, _) = compile(&lower(&documents, &ClusterSettings::default()).snapshot);
    let namespace = Namespace::create()?;
    let settings = NodeSettings {
        never_leased: NeverLeased::new("cluster.local".parse()?),
        scope: Scope::default(),
        cut: CutEstablished::default(),
        settle: Settle::default(),
        // Two leases a look-up: there is room for those of the first two measurements.
        bounds: Bounds { leases: 4 * lookups as usize, names_a_pattern: 4 * lookups as usize, ..Bounds::default() },
        learning: Learning::default(),
    };
    let mut node = namespace.enter(|| Node::open(Settings::default(), settings))??;
    node.enforce(&program)?;
    let learner = node.learner().clone();
    let mut first = 0;
    for (name, at_once) in [("learned_one", 1), ("learned_many", MANY), ("learned_full", MANY)] {
        let times: Vec<Times> = (0..lookups / at_once)
            .map(|turn| learn(&learner, first + turn * at_once, at_once))
            .collect::<Result<_>>()?;
        first += lookups;
        let of = |time: fn(&Times) -> Duration| -> Vec<f64> {
            times.iter().map(|one| time(one).as_secs_f64() * 1e6 / f64::from(at_once)).collect()
        };
        let (reading, opening) = (of(|one| one.reading), of(|one| one.opening));
        figure(&format!("{name}_reading_us"), quantile(&reading, 0.5));
        figure(&format!("{name}_opening_us"), quantile(&opening, 0.5));
        let mean = reading.iter().chain(&opening).sum::<f64>() / times.len() as f64;
        figure(&format!("{name}_mean_us"), mean);
    }
    Ok(())
}

/// CPU time of a turn.
struct Times {
    /// To read the answers, and to compare them with the leases.
    reading: Duration,
    /// To have the kernel open what they say.
    opening: Duration,
}

fn learn(learner: &Learner, first: u32, lookups: u32) -> Result<Times> {
    let answers: Vec<[Vec<u8>; 2]> = (first..first + lookups).map(answers).collect();
    let mut batch = Default::default();
    let began = cpu_time()?;
    for bytes in answers.iter().flatten() {
        learner.learn(&Answer { client: CLIENT, upstream: Some(UPSTREAM), bytes }, &mut batch);
    }
    let read = cpu_time()?;
    learner.commit(&mut batch).context("the kernel refuses leases")?;
    Ok(Times { reading: read - began, opening: cpu_time()? - read })
}

fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// The answers to a look-up, each with an address of its own.
fn answers(number: u32) -> [Vec<u8>; 2] {
    let v4 = Ipv4Addr::from_bits(Ipv4Addr::new(11, 0, 0, 0).to_bits() + number).octets().to_vec();
    let v6 = Ipv6Addr::from_bits(Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 0).to_bits() + u128::from(number));
    [(1, v4), (28, v6.octets().to_vec())].map(|(kind, address)| {
        let name = format!("name-{number:08}");
        let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, name.len() as u8];
        bytes.extend(name.as_bytes());
        bytes.extend(b"\x07example\x03com\0\0");
        bytes.extend([kind, 0, 1]);
        // The owner is a pointer to the question; the TTL is an hour.
        bytes.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 14, 16, 0, address.len() as u8]);
        bytes.extend(address);
        bytes
    })
}
