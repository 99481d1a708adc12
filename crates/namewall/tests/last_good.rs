//! S10.3 with `namewall run` as a process: its manifests and its stored state are
//! broken, emptied, cut off and removed before a start, a take-over and after a
//! kill, and packets show what is enforced.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

mod world;

use namewall_sandbox::ensure_rights;
use namewall_testbed::{give_up, program};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::PathBuf;
use world::disk::{Disk, own_mounts};
use world::{Process, World};

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().unwrap_or_else(|error| give_up(error));
    program("nft");
    own_mounts();
    let world = World::build("last-good");
    let policies = std::fs::read_to_string(manifest(&world)).unwrap();
    after_a_kill_a_broken_manifest_keeps_its_policies(&world, &policies);
    a_take_over_keeps_the_policies_of_a_broken_manifest(&world, &policies);
    a_lost_state_leaves_the_kernel_as_it_is(&world, &policies);
    a_manifest_that_is_removed_is_deleted(&world, &policies);
    a_disk_that_takes_nothing_is_told_and_written_when_it_does(&world, &policies);
    uninstall_finds_the_state_wherever_it_is(&world, &policies);
    println!("test last_good: 6 passed");
}

fn manifest(world: &World) -> PathBuf {
    world.folder.join("manifests/policies.yaml")
}

/// Another text, all at once.
fn write(world: &World, text: &str) {
    let new = world.folder.join("manifests/policies.new");
    std::fs::write(&new, text).and_then(|()| std::fs::rename(new, manifest(world))).unwrap();
}

fn run(world: &World, more: &[&str]) -> Process {
    let (manifests, state) = (world.folder.join("manifests"), world.folder.join("state"));
    let arguments = ["run", "--manifests", manifests.to_str().unwrap(), "--state-dir", state.to_str().unwrap()];
    world.spawn(&[&arguments, more].concat())
}

fn status(world: &World) -> Value {
    serde_json::from_str(&world.says(&["status", "-o", "json"])).unwrap()
}

/// Ends it as nothing can that leaves time to tidy up.
fn kill(process: Process) {
    process.signal(Signal::SIGKILL);
    drop(process);
}

/// The policies deny the provider until its name is looked up, and the file is told of if it is wrong.
fn assert_enforced(world: &World, is_kept: bool, what: &str) {
    assert!(!world.reaches_provider(), "{what}: the provider is open; the log says:\n{}", world.log());
    let status = status(world);
    assert!(status["policies"].as_u64() > Some(0), "{what}: {status:#}");
    assert_eq!(status["keptFiles"].as_array().unwrap().len(), usize::from(is_kept), "{what}: {status:#}");
    let text = world.says(&["status"]);
    assert_eq!(
        text.contains("policies.yaml has an error; its last good version stays in force"),
        is_kept,
        "{what}: {text}"
    );
}

fn after_a_kill_a_broken_manifest_keeps_its_policies(world: &World, policies: &str) {
    write(world, policies);
    kill(run(world, &[]));
    let separator = policies.find("---\n").map(|at| policies[..at + 4].to_owned());
    let cut_at_separator = separator.unwrap_or_else(|| format!("{policies}---\n"));
    let is_whole = cut_at_separator.len() > policies.len();
    for (text, what) in [
        ("{", "no YAML"),
        ("", "no byte"),
        (&policies[..policies.len() / 2 - 3], "half of it"),
        (&policies.replace("kind: ClusterNetworkPolicy", "kind: ClusterNetworkPolcy"), "a misspelt kind"),
    ] {
        write(world, text);
        let process = run(world, &[]);
        assert_enforced(world, true, what);
        kill(process);
        // Once more: this one has never seen the good file.
        let process = run(world, &[]);
        assert_enforced(world, true, what);
        kill(process);
    }
    write(world, &cut_at_separator);
    let process = run(world, &[]);
    assert_enforced(world, !is_whole, "cut at the separator");
    write(world, policies);
    world.wait_for(|| status(world)["keptFiles"].as_array().unwrap().is_empty());
    kill(process);
}

fn a_take_over_keeps_the_policies_of_a_broken_manifest(world: &World, policies: &str) {
    write(world, policies);
    let old = run(world, &[]);
    write(world, "");
    let new = run(world, &["--take-over"]);
    drop(old);
    assert_enforced(world, true, "taken over");
    kill(new);
}

fn a_lost_state_leaves_the_kernel_as_it_is(world: &World, policies: &str) {
    write(world, policies);
    kill(run(world, &[]));
    let state = world.folder.join("state/last-good/namewall");
    let bytes = std::fs::read(&state).unwrap();
    std::fs::write(&state, &bytes[..bytes.len() / 2]).unwrap();
    write(world, "{");
    let process = run(world, &[]);
    assert!(!world.reaches_provider(), "the log says:\n{}", world.log());
    let held = status(world)["held"].as_str().unwrap_or_default().to_owned();
    assert!(held.contains("policies.yaml") && held.contains("stay as they are"), "{held}");
    assert!(world.says(&["status"]).contains(&held));
    write(world, policies);
    // Between the wait and the start nobody answers for a moment.
    world.wait_for(|| String::from_utf8_lossy(&world.ask(&["status", "-o", "json"]).stdout).contains("\"policies\""));
    assert_enforced(world, false, "mended");
    kill(process);
}

fn a_manifest_that_is_removed_is_deleted(world: &World, policies: &str) {
    write(world, policies);
    let process = run(world, &[]);
    assert_enforced(world, false, "before");
    std::fs::remove_file(manifest(world)).unwrap();
    world.wait_for(|| world.reaches_provider());
    kill(process);
}

fn uninstall_finds_the_state_wherever_it_is(world: &World, policies: &str) {
    write(world, policies);
    let process = run(world, &[]);
    let stored = ["last-good/namewall", "leases/namewall"].map(|file| world.folder.join("state").join(file));
    world.wait_for(|| stored.iter().all(|file| file.exists()));
    process.signal(Signal::SIGTERM);
    drop(process);
    let on_node = |args: &[&str]| world.sandbox.node(world::NODE).unwrap().enter(|| world.says(args)).unwrap();
    // Without --state-dir: the process has left a note that names its folder.
    let told = on_node(&["uninstall"]);
    assert!(stored.iter().all(|file| !file.exists()), "{told}");
    assert!(stored.iter().all(|file| told.contains(&format!("removed {}", file.display()))), "{told}");
    assert!(!told.contains("found no stored state"), "{told}");
    // What it cannot know, it says.
    let process = run(world, &[]);
    world.wait_for(|| stored.iter().all(|file| file.exists()));
    process.signal(Signal::SIGTERM);
    drop(process);
    std::fs::remove_file(world.runtime(world::NODE).join("state-of-namewall")).unwrap();
    let told = on_node(&["uninstall"]);
    assert!(told.contains("found no stored state of table namewall in ") && told.contains("--state-dir"), "{told}");
    let told = on_node(&["uninstall", "--state-dir", world.folder.join("state").to_str().unwrap()]);
    assert!(stored.iter().all(|file| !file.exists()), "{told}");
    // A folder that is named and has nothing is told, also where there was no table.
    let told = on_node(&["uninstall", "--state-dir", "/nonexistent"]);
    assert!(told.contains("found no stored state of table namewall in /nonexistent"), "{told}");
}

/// How a disk takes nothing any more, and takes something again.
struct Fault {
    begin: fn(&Disk),
    /// What the system calls it.
    told: &'static str,
    end: fn(&Disk),
}

const FAULTS: [Fault; 2] = [
    Fault { begin: Disk::fill, told: "No space left on device", end: Disk::free },
    Fault {
        begin: |disk| disk.set_read_only(true),
        told: "Read-only file system",
        end: |disk| disk.set_read_only(false),
    },
];

/// A change is enforced, the failure is in `status`, log and metrics, and the change is stored when that is possible.
fn a_disk_that_takes_nothing_is_told_and_written_when_it_does(world: &World, policies: &str) {
    let (manifests, state) = (world.folder.join("manifests"), world.folder.join("small"));
    let disk = Disk::mount(state.clone());
    let port = 9554;
    let (manifests, state, metrics) = (manifests.to_str().unwrap(), state.to_str().unwrap(), format!(":{port}"));
    let arguments = ["run", "--manifests", manifests, "--state-dir", state, "--metrics-address", &metrics];
    let failing = |value: usize| format!("\nnamewall_last_good_store_failing {value}\n");
    let is_exported = |value| world.get(port, "/metrics").is_some_and(|reply| reply.contains(&failing(value)));
    for (at, Fault { begin, told, end }) in FAULTS.into_iter().enumerate() {
        write(world, "apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n");
        let process = world.spawn(&arguments);
        assert!(world.reaches_provider(), "{told}: nothing denies it yet");
        begin(&disk);
        // Another text each time: one that is stored already is not written again.
        write(world, &format!("# {at}\n{policies}"));
        world.wait_for(|| !world.reaches_provider());
        world.wait_for(|| status(world)["storage"]["failure"].as_str().is_some_and(|text| text.contains(told)));
        assert!(world.says(&["status"]).contains(told));
        assert!(world.log().contains(told), "{}", world.log());
        world.wait_for(|| is_exported(1));
        // Nothing changes any more, but for the disk.
        end(&disk);
        world.wait_for(|| status(world)["storage"]["failure"].is_null());
        world.wait_for(|| is_exported(0));
        assert!(world.log().contains("the last good objects are stored again"), "{}", world.log());
        kill(process);
        write(world, "{");
        let process = world.spawn(&arguments);
        assert_enforced(world, true, told);
        kill(process);
    }
}
