//! A real Prometheus scrapes `namewall dns`, and promtool checks the form of its metrics.

use crate::ports::free_port;
use crate::process::{Asker, Folder, Serving, TEST_TIMEOUT};
use namewall_testbed::{Process, output_with_input, program};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The body of a page, or none if nobody serves it.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    head.split_once(' ').is_some_and(|(_, status)| status.starts_with("200")).then(|| body.to_owned())
}

/// What an expression of Prometheus comes to, as a number for each series.
fn query(port: u16, expression: &str) -> Vec<f64> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let Some(body) = get(port, &format!("/api/v1/query?query={encoded}")) else { return Vec::new() };
    let told: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let series = told["data"]["result"].as_array().unwrap_or_else(|| panic!("{expression}: {told}"));
    series.iter().map(|one| one["value"][1].as_str().unwrap().parse().unwrap()).collect()
}

/// What panels of dashboards for CoreDNS ask, without the time of `rate`: a test is over before.
const PANELS: [&str; 13] = [
    "sum(coredns_dns_requests_total{job=\"dns\"}) by (proto)",
    "sum(coredns_dns_requests_total) by (type, view)",
    "sum(coredns_dns_responses_total) by (rcode, plugin)",
    "histogram_quantile(0.99, sum(coredns_dns_request_duration_seconds_bucket) by (le, server, zone))",
    "histogram_quantile(0.99, sum(coredns_dns_request_size_bytes_bucket{proto=\"udp\"}) by (le, proto))",
    "histogram_quantile(0.99, sum(coredns_dns_response_size_bytes_bucket{proto=\"udp\"}) by (le, proto))",
    "sum(coredns_cache_hits_total) by (type) / ignoring(type) group_left sum(coredns_cache_requests_total)",
    "sum(coredns_cache_entries) by (type)",
    "coredns_panics_total + coredns_reload_failed_total",
    "count(coredns_plugin_enabled{name=\"cache\"})",
    "coredns_build_info * on() group_left coredns_reload_version_info",
    "process_resident_memory_bytes + process_cpu_seconds_total + process_open_fds",
    "time() - process_start_time_seconds",
];

#[test]
fn a_real_prometheus_scrapes_what_dashboards_for_coredns_show() {
    let (port, above, metrics, web) = (free_port(), free_port(), free_port(), free_port());
    let _upstream = Serving::start(&format!(
        ".:{above} {{\n bind 127.0.0.1\n template IN A . {{\n  answer \"{{{{ .Name }}}} 60 IN A 192.0.2.7\"\n }}\n}}\n"
    ));
    let serving = Serving::start(&format!(
        ".:{port} {{\n bind 127.0.0.1\n prometheus 127.0.0.1:{metrics}\n cache\n errors\n hosts /no/such/file {{\n  \
         192.0.2.1 www.example\n  fallthrough\n }}\n firewall query {{\n  refuse name == 'no.example'\n  default allow\n }}\n \
         forward . 127.0.0.1:{above}\n}}\n"
    ));
    let asker = Asker::of(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    for (id, name) in (0..).zip(["www", "www", "no", "cached", "cached"]) {
        asker.ask(id, name);
    }
    let text = get(metrics, "/metrics").unwrap();
    let mut check = Command::new(program("promtool"));
    let checked = output_with_input(check.args(["check", "metrics"]), &text).unwrap();
    assert!(checked.status.success(), "{}\n{text}", String::from_utf8_lossy(&checked.stderr));

    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: dns, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n"
    );
    let folder = Folder::new("");
    folder.write("prometheus.yml", config);
    let log = std::fs::File::create(folder.path("log")).unwrap();
    let child = Command::new(program("prometheus"))
        .arg(format!("--config.file={}", folder.path("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.path("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{web}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut prometheus = Process::owned(child);
    let began = Instant::now();
    while query(web, "up{job=\"dns\"}") != [1.0] {
        let log = std::fs::read_to_string(folder.path("log")).unwrap_or_default();
        assert!(prometheus.is_alive() && began.elapsed() < TEST_TIMEOUT, "nothing is scraped:\n{log}");
        std::thread::sleep(Duration::from_millis(100));
    }
    for panel in PANELS {
        let told = query(web, panel);
        assert!(!told.is_empty() && told.iter().all(|value| value.is_finite()), "{panel}: {told:?}");
    }
    assert_eq!(query(web, "sum(coredns_dns_requests_total)"), [5.0]);
    assert_eq!(query(web, "sum(coredns_dns_responses_total{plugin=\"firewall\",rcode=\"REFUSED\"})"), [1.0]);
    assert_eq!(query(web, "sum(coredns_dns_responses_total{plugin=\"hosts\"})"), [2.0]);
    assert_eq!(query(web, "sum(coredns_cache_hits_total)"), [1.0]);
    drop(serving);
}
