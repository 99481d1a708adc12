//! With network namespaces of the kernel, and without entering them.

use super::*;
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::thread;

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip runs");
    assert!(done.success(), "ip {arguments}");
}

#[test]
fn s1_9_the_network_namespace_of_a_sandbox_names_its_interface() {
    let test = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace can be made; run it as root");
        let mut pod = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().expect("unshare runs");
        let own = std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
        let id = pod.id();
        let namespaces = PathBuf::from(format!("/proc/{id}/ns"));
        while std::fs::read_link(namespaces.join("net")).is_ok_and(|other| other == own) {
            thread::sleep(Duration::from_millis(2));
        }
        ip("link add cni0 type bridge");
        ip("link add other type veth peer name else");
        let runtime = Runtime { socket: PathBuf::new(), namespaces };
        let find = |file: &str| {
            let sandbox = PodSandbox {
                id: "a".to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                uid: "u1".to_owned(),
                created: 0,
                addresses: vec![[10, 0, 0, 1].into()],
                netns: Some(format!("/var/run/netns/{file}").into()),
            };
            let link = located(sandbox, &runtime, &mut HostEnds::read().expect("links")).expect("it has a namespace");
            (link.host.map(|host| host.name), link.problem)
        };
        assert_eq!(find("net"), (None, Some("its interface is no veth".to_owned())));
        ip(&format!("link add host1 master cni0 type veth peer name eth0 netns {id}"));
        assert_eq!(find("net"), (Some("host1".to_owned()), None));
        // The pod may call its interface what it likes.
        ip(&format!("link add host2 type veth peer name net1 netns {id}"));
        assert_eq!(find("net"), (None, Some("it has several veths".to_owned())));
        assert!(find("gone").1.is_some_and(|problem| problem.contains("gone")));
        pod.kill().and_then(|()| pod.wait()).expect("it ends");
    };
    thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
