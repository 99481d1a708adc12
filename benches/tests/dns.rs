//! The load and the upstream that forwarders are measured with keep up with
//! each other: nothing is lost, and every answer is the right one.

use std::process::Command;
use std::thread::available_parallelism;

#[test]
fn the_upstream_asked_directly_answers_all_rightly() {
    if available_parallelism().map_or(1, usize::from) < 2 {
        // The load and a forwarder each want a core.
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_namewall-bench-dns"));
    let output = command.args(["--quick", "--cases", "upstream"]).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complained}");
    let figure = |name: &str| -> Option<f64> {
        said.lines().find_map(|line| line.strip_prefix(&format!("figure {name} "))?.parse().ok())
    };
    let wanted = ["dns_sent_upstream", "dns_lost_upstream", "dns_wrong_upstream", "dns_done"];
    assert_eq!(wanted.map(figure), [Some(1_400.0), Some(0.0), Some(0.0), Some(1.0)], "{said}");
}
