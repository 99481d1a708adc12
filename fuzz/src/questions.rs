//! Text as questions: line 1 is who, every other line whom, asked in the shop.

use namewall_cluster::{Document, Settings, lower};
use namewall_policy::ask::{Host, Names, Target, World};
use namewall_policy::{Instant, LeaseTable, Program, Snapshot, compile};
use std::sync::OnceLock;

const SHOP: [&str; 2] =
    [include_str!("../../examples/shop/cluster.yaml"), include_str!("../../examples/shop/policies.yaml")];

pub fn questions(bytes: &[u8]) {
    static WORLD: OnceLock<(Snapshot, Program)> = OnceLock::new();
    let (snapshot, program) = WORLD.get_or_init(|| {
        let documents: Vec<Document> =
            SHOP.iter().flat_map(|text| Document::read_all(&"shop".into(), text).0).collect();
        let snapshot = lower(&documents, &Settings::default()).snapshot;
        let program = compile(&snapshot).0;
        (snapshot, program)
    });
    let world = World {
        snapshot,
        program,
        leases: &LeaseTable::default(),
        names: &Names::new(),
        cluster_domain: &"cluster.local".parse().expect("it is a name"),
        now: Instant::default(),
    };
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let from: Result<Host, _> = lines.next().unwrap_or_default().parse();
    for line in lines.take(8) {
        let Ok(target) = line.parse::<Target>() else { continue };
        assert_ne!(target.port, Some(0), "0 is no port: `{line}`");
        assert!(target.protocol.has_ports() || target.port.is_none(), "{} has no ports: `{line}`", target.protocol);
        reads_back(&target.host);
        if let Ok(from) = &from
            && let Ok(routes) = world.routes(from, &target)
        {
            world.predict(&routes);
            world.depends_on(&routes);
        }
    }
}

/// An end is shown as it may be typed.
fn reads_back(host: &Host) {
    let shown = host.to_string();
    assert_eq!(shown.parse().as_ref(), Ok(host), "`{shown}` reads back");
}
