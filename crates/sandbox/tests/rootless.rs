//! A user without rights has a sandbox too, in a user namespace. This test has
//! no harness: it starts itself again as another user, before any thread.

mod common;

use common::{Cluster, EVERY_PROTOCOL, PORT, listen_everywhere, measure};
use namewall_sandbox::{Measured, RightsError, ensure_rights, enter_user_namespace};
use std::os::unix::process::CommandExt;
use std::process::Command;

const NOBODY: u32 = 65_534;
const STEP: &str = "NAMEWALL_SANDBOX_TEST";

fn main() {
    match std::env::var(STEP).as_deref() {
        Ok("build") => build(),
        Ok("threads") => threads(),
        _ => {
            for step in ["build", "threads"] {
                start(step);
                println!("a user without rights: {step} ... ok");
            }
        }
    }
}

/// As nobody where we are root; as ourselves where we have no rights to begin with.
fn start(step: &str) {
    let mut command = Command::new("/proc/self/exe");
    command.env(STEP, step).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().expect("this test starts itself");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "step {step}, as a user without rights:\n{said}");
}

fn build() {
    assert!(!nix::unistd::geteuid().is_root(), "rights were given up");
    if let Err(error) = ensure_rights() {
        panic!("{error}");
    }
    let cluster = Cluster::default().node("n1", &["192.0.2.1"]).pod("shop/web", "n1", &["10.0.1.2", "fd00:1::2"]).pod(
        "shop/db",
        "n2",
        &["10.0.2.2", "fd00:2::2"],
    );
    let mut sandbox = cluster.build(&["203.0.113.7"]);
    listen_everywhere(&mut sandbox, PORT);
    for protocol in EVERY_PROTOCOL {
        for (from, to) in [("10.0.1.2", "10.0.2.2"), ("fd00:1::2", "fd00:2::2"), ("10.0.1.2", "203.0.113.7")] {
            assert_eq!(measure(&sandbox, from, to, protocol), Measured::Open, "{from} -> {to}/{protocol}");
        }
    }
}

/// It says so, where it is too late to enter one.
fn threads() {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    assert!(matches!(enter_user_namespace(), Err(RightsError::Threads)));
    drop(end);
    let _ = thread.join();
}
