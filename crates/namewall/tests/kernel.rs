//! Programs in the real kernel, each test in a network namespace of its own.
//! `nft` is the oracle: what it lists is what the kernel has.

use namewall_cluster::{Settings as ClusterSettings, load, lower};
use namewall_dataplane::Dataplane;
use namewall_dataplane::nft::{Nft, Settings};
use namewall_policy::{Program, compile};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;
use std::process::Command;
use std::thread;

/// Runs in a new network namespace, which goes when the test does.
fn isolated<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made; run the tests as root");
        test()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn program(path: &str) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let manifests = load(&[path]).expect("the example can be read");
    compile(&lower(&manifests.documents, &ClusterSettings::default()).snapshot).0
}

fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().expect("nft runs; install nftables");
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_kernel_lists_what_was_rendered() {
    isolated(|| {
        let program = program("examples/shop");
        let mut kernel = Nft::open(Settings::default()).expect("nftables can be used");
        kernel.replace(&program).expect("the kernel takes the Program");
        println!("{}", kernel.table().expect("it was made"));
        println!("----\n{}", nft(&["-s", "list", "table", "inet", "namewall"]));
    });
}
