//! The chart is of the binary's version.

use std::path::Path;

#[test]
fn the_chart_has_the_version_of_the_binary() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/namewall/Chart.yaml");
    let chart = std::fs::read_to_string(path).expect("the chart can be read");
    for key in ["version", "appVersion"] {
        let line = format!("\n{key}: {}\n", env!("CARGO_PKG_VERSION"));
        assert!(chart.contains(&line), "Chart.yaml has another {key}");
    }
}
