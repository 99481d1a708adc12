//! A controller with many names: what it takes, and how late it looks them up
//! again and has written what it found. Whoever watches the objects, as agents
//! do, is who is asked.

use crate::process::Process;
use crate::stub::Stub;
use crate::{Folder, control_plane, namewall};
use anyhow::{Result, ensure};
use namewall_bench::figures::{figure, quantile};
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_cluster::kinds::dns_name_resolver::ResolvedName;
use namewall_cluster::resolver::next_lookup;
use namewall_kubernetes::{Connection, Target, Watch};
use namewall_testbed::ControlPlane;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// How many rules an EgressFirewall has here: at most 8,000 are allowed.
const A_FIREWALL: usize = 5_000;
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn measure(count: usize, time: Duration) -> Result<()> {
    let (plane, stub, folder) = (control_plane()?, Stub::start()?, Folder::create("names")?);
    let connection = Connection::open(&Target { kubeconfig: Some(plane.kubeconfig()), context: None })?;
    let mut seen = Seen {
        watch: Watch::start_for(&connection, [&DNS_NAME_RESOLVER]),
        stub,
        names: HashMap::new(),
        lookups: Vec::new(),
        writes: Vec::new(),
    };
    let mut command = Command::new(namewall()?);
    command.args(["controller", "--namespace", "namewall", "--identity", "one", "--kubeconfig"]);
    command.arg(plane.kubeconfig()).arg("--resolver").arg(seen.stub.at.to_string());
    let controller = Process::start(command, &folder.0.join("log"))?;
    let began = Instant::now();
    make_firewalls(&plane, count)?;
    while seen.names.len() < count {
        ensure!(began.elapsed() < RESOLVE_TIMEOUT, "only {} of {count} names are resolved", seen.names.len());
        seen.look();
    }
    figure("cluster_names_start_s", began.elapsed().as_secs_f64());
    figure("cluster_names_peak_mb", controller.memory()[1]);
    // What was due while all names were new is of another load.
    let begin = SystemTime::now();
    (seen.lookups, seen.writes) = (Vec::new(), Vec::new());
    let (before, began) = (controller.cpu_time()?, Instant::now());
    while began.elapsed() < time {
        seen.look();
    }
    let used = controller.cpu_time()?.saturating_sub(before);
    seen.count_overdue(begin);
    ensure!(!seen.writes.is_empty(), "no name was looked up again");
    figure("cluster_names", seen.names.len() as f64);
    figure("cluster_names_mb", controller.memory()[0]);
    figure("cluster_names_cores", used.as_secs_f64() / began.elapsed().as_secs_f64());
    figure("cluster_names_a_second", seen.writes.len() as f64 / began.elapsed().as_secs_f64());
    for (what, lags) in [("lookup", &seen.lookups), ("write", &seen.writes)] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            figure(&format!("cluster_names_{what}_{name}_ms"), quantile(lags, share));
        }
    }
    Ok(())
}

fn make_firewalls(plane: &ControlPlane, count: usize) -> Result<()> {
    let mut numbers = 0..count;
    for firewall in 0..count.div_ceil(A_FIREWALL) {
        let mut text = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop-{firewall}}}\n---\n\
             apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {{name: default, namespace: shop-{firewall}}}\n\
             spec:\n  egress:\n"
        );
        for number in numbers.by_ref().take(A_FIREWALL) {
            writeln!(text, "    - {{type: Allow, to: {{dnsName: n{number}.load.example}}}}")?;
        }
        plane.apply(&text)?;
    }
    Ok(())
}

/// What somebody sees who watches.
struct Seen {
    watch: Watch,
    stub: Stub,
    names: HashMap<String, LookupTimes>,
    /// How late each was, in milliseconds.
    lookups: Vec<f64>,
    writes: Vec<f64>,
}

#[derive(Clone, Copy)]
struct LookupTimes {
    looked_up: SystemTime,
    due: SystemTime,
}

impl LookupTimes {
    fn of(item: &ResolvedName) -> Option<Self> {
        let looked_up = item.resolved_addresses.iter().filter_map(|address| address.last_lookup_time).max()?;
        let due = item.resolved_addresses.iter().map(next_lookup).min()?;
        Some(Self { looked_up: looked_up.into(), due: due.into() })
    }
}

impl Seen {
    fn look(&mut self) {
        self.watch.wait(LOOK_EVERY);
        self.watch.take_change();
        let now = SystemTime::now();
        let objects = self.watch.new_names().into_iter().filter_map(|(_, object)| object);
        for item in objects.flat_map(|object| object.status.resolved_names) {
            let Some(new) = LookupTimes::of(&item) else { continue };
            let Some(known) = self.names.insert(item.dns_name.clone(), new) else { continue };
            if new.looked_up > known.looked_up {
                self.lookups.extend(self.stub.last_asked(&item.dns_name).map(|asked| late(asked, known.due)));
                self.writes.push(late(now, known.due));
            }
        }
    }

    /// Those that should have been looked up long ago are late as well.
    fn count_overdue(&mut self, begin: SystemTime) {
        let now = SystemTime::now();
        let overdue = self.names.values().filter(|known| known.due > begin && late(now, known.due) > 1e3);
        self.writes.extend(overdue.map(|known| late(now, known.due)));
    }
}

/// In milliseconds; nothing for what came early.
fn late(at: SystemTime, due: SystemTime) -> f64 {
    at.duration_since(due).unwrap_or_default().as_secs_f64() * 1e3
}
