//! A user without rights has a sandbox too, in a user namespace; and nothing is
//! left of one whose process is killed. This test has no harness: it starts
//! itself again as another user, before any thread.

mod common;

use common::{Cluster, EVERY_PROTOCOL, PORT, listen_everywhere, measure};
use namewall_sandbox::{Measured, RightsError, ensure_rights, enter_user_namespace};
use namewall_testbed::give_up;
use nix::sched::{CloneFlags, setns};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;
const STEP: &str = "NAMEWALL_SANDBOX_TEST";
const STEPS: [(&str, fn()); 3] = [
    ("a_user_without_rights_builds_a_cluster", build),
    ("it_is_too_late_after_the_first_thread", threads),
    ("nothing_is_left_when_its_process_is_killed", killed),
];

fn main() {
    match std::env::var(STEP).as_deref() {
        Ok("hold") => hold(),
        Ok(name) => STEPS.iter().filter(|(step, _)| *step == name).for_each(|(_, run)| run()),
        Err(_) => {
            for (step, _) in STEPS {
                start(step);
                println!("test {step} ... ok");
            }
        }
    }
}

fn again(step: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env(STEP, step).current_dir("/");
    command
}

/// As nobody where we are the real root; else as whoever we are, who has no rights to begin with.
fn start(step: &str) {
    let mut command = again(step);
    let users = fs::read_to_string("/proc/self/uid_map").expect("the map of users");
    if nix::unistd::geteuid().is_root() && users.split_whitespace().eq(["0", "0", "4294967295"]) {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().expect("this test starts itself");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{step}, as a user without rights:\n{said}");
}

fn become_able() {
    // Root of an outer user namespace can do without another one, but here it is what is tested.
    let able = if nix::unistd::geteuid().is_root() { enter_user_namespace() } else { ensure_rights() };
    if let Err(error) = able {
        give_up(error);
    }
}

fn cluster() -> Cluster {
    Cluster::default().node("n1", &["192.0.2.1"]).pod("shop/web", "n1", &["10.0.1.2", "fd00:1::2"]).pod(
        "shop/db",
        "n2",
        &["10.0.2.2", "fd00:2::2"],
    )
}

fn build() {
    become_able();
    let mut sandbox = cluster().build(&["203.0.113.7"]);
    listen_everywhere(&mut sandbox, PORT);
    for protocol in EVERY_PROTOCOL {
        for (from, to) in [("10.0.1.2", "10.0.2.2"), ("fd00:1::2", "fd00:2::2"), ("10.0.1.2", "203.0.113.7")] {
            assert_eq!(measure(&sandbox, from, to, protocol), Measured::Open, "{from} -> {to}/{protocol}");
        }
    }
}

fn threads() {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    assert!(matches!(enter_user_namespace(), Err(RightsError::Threads)));
    drop(end);
    let _ = thread.join();
}

/// Tells where the outside is, and waits to be killed.
fn hold() {
    let sandbox = cluster().build(&[]);
    println!("{}", sandbox.outside().path().display());
    std::thread::sleep(Duration::from_secs(60));
}

/// The links from the outside to its nodes go when the nodes' namespaces go.
fn killed() {
    become_able();
    let mut child = again("hold").stdout(Stdio::piped()).spawn().expect("this test starts itself");
    let mut path = String::new();
    let said = child.stdout.take().expect("its output is ours");
    BufReader::new(said).read_line(&mut path).expect("it tells where the outside is");
    let outside = File::open(path.trim()).expect("the outside is there");
    assert_eq!(count_nodes(&outside), 2);
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    let deadline = Instant::now() + Duration::from_secs(10);
    while count_nodes(&outside) > 0 {
        assert!(Instant::now() < deadline, "the nodes' links are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn count_nodes(outside: &File) -> usize {
    std::thread::scope(|scope| {
        let count = scope.spawn(|| {
            setns(outside, CloneFlags::CLONE_NEWNET).expect("the outside is entered");
            let links = fs::read_to_string("/proc/thread-self/net/dev").expect("its links are listed");
            links.lines().filter(|line| line.trim_start().starts_with("node")).count()
        });
        count.join().expect("it has counted")
    })
}
