//! Tables inside a network namespace, through sockets that were opened in it.

use super::*;
use crate::Dataplane as _;
use crate::PodNamespace;
use crate::nft::{Settings, isolated};
use crate::sample::Sample;
use std::process::Command;

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let done = Command::new(words.next().expect("a program")).args(words).status().expect("it runs");
    assert!(done.success(), "{command}");
}

fn namespace(sockets: PodSockets) -> PodNamespace {
    PodNamespace {
        id: "c1".to_owned(),
        pod: "shop/web".to_owned(),
        own: "eth0".to_owned(),
        addresses: vec!["10.0.0.1".parse().expect("an address")],
        has_table: false,
        last_seen: None,
        extra: Vec::new(),
        sockets: Arc::new(Mutex::new(sockets)),
    }
}

/// The kernel lets only the sockets that own a table change it; so these play the one who tampers.
#[test]
fn s1_9_a_change_by_somebody_else_is_found_and_made_right() {
    isolated(|| {
        run("ip link add eth0 type veth peer name node0");
        run("ip link add net1 type veth peer name node1");
        let mut nft = Nft::open(Settings::default()).expect("the kernel has nftables");
        let pod = namespace(PodSockets::open().expect("sockets"));
        let program = Sample::default().pod("web", &["10.0.0.1"], "n1").program();
        let (scope, leases) = (Scope::default(), LeaseTable::default());
        let now = Instant(Duration::ZERO);
        let inside = Inside { pod: &pod, program: &program, scope: &scope, leases: &leases, now };
        let first = nft.inside(&inside);
        assert_eq!((first.failure, first.is_judged, first.repaired), (None, true, 0));
        assert!(first.interfaces.contains(&"net1".to_owned()) && !first.interfaces.contains(&"eth0".to_owned()));
        assert!(!nft.has_news_inside(true), "nothing has changed");
        for (family, repaired) in [(TableFamily::Inet, 1), (TableFamily::Netdev, 2)] {
            let table = TableRef { family, name: "namewall" };
            let mut tampers = Batch::new(table);
            tampers.delete_table();
            lock(&pod.sockets).netfilter.commit(&tampers.finish()).expect("it owns the table");
            assert!(!nft.has_news_inside(false), "tables are looked at only if that is asked for");
            assert!(nft.has_news_inside(true));
            let after = nft.inside(&inside);
            assert_eq!((after.failure, after.repaired), (None, repaired));
            let mut sockets = lock(&pod.sockets);
            assert!(Session { socket: &mut sockets.netfilter, table }.exists().expect("it can be read"));
        }
        assert!(!nft.has_news_inside(true));
        // A new interface is news by itself.
        run("ip link add net2 type veth peer name node2");
        assert!(nft.has_news_inside(false));
        let later = nft.inside(&inside);
        assert!(later.interfaces.contains(&"net2".to_owned()) && later.repaired == 2, "{later:?}");
    });
}
