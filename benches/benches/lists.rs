//! What a million names cost a question, in memory and while they are replaced: a list of names, a hosts file and a
//! policy zone, each in a Corefile that is asked as the DNS server asks it. Memory is the process's own, as the kernel
//! counts it. Every line is `figure NAME VALUE`; beside those with a goal stands how much of it they are.

use namewall_corefile::read;
use namewall_dns::{Asked, Chain, Step, Transport};
use namewall_dns_firewall::{Disk, Service, Strangers, Surroundings, Teller, build};
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NAMES: u32 = 1_000_000;
/// Questions of a round; names are told apart by their numbers, so that caches of the processor do not have all of them.
const QUESTIONS: u32 = 100_000;

fn name(number: u32) -> String {
    let mixed = number.wrapping_mul(2_654_435_761);
    format!("{:x}-track{}.ads{}.example", mixed, number % 10, mixed % 5_000)
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn write(path: &Path, head: &str, line: impl Fn(u32) -> String) {
    let mut text = head.to_owned();
    for number in 0..NAMES {
        _ = writeln!(text, "{}", line(number));
    }
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("there is room for a file");
    std::fs::rename(&new, path).expect("it is ours");
}

fn service(directives: &str) -> Service {
    let text = format!(". {{\nbind 127.0.0.1\nreload 2s\n{directives}\nforward . 192.0.2.53\n}}\n");
    let corefile = read("Corefile", &text, &Disk, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    let teller = Arc::new(Teller::start(std::io::sink()).expect("a thread can start"));
    let around =
        Surroundings { teller, identities: Arc::new(Strangers), addresses: Vec::new(), names: None, clusters: None };
    build(&corefile, &around).unwrap_or_else(|errors| panic!("{errors:?}")).service
}

fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// Asks a question. True if it is forwarded.
fn passes(service: &Service, query: &[u8]) -> bool {
    let (client, server) = (SocketAddr::from(([192, 0, 2, 9], 4_000)), SocketAddr::from(([127, 0, 0, 1], 53)));
    let asked = Asked { query, client, server, transport: Transport::Udp };
    matches!(black_box(service.query(black_box(&asked))), Step::Forward(..))
}

fn questions(name: impl Fn(u32) -> String) -> Vec<Vec<u8>> {
    (0..QUESTIONS).map(|number| query(&name(number * (NAMES / QUESTIONS)))).collect()
}

/// Microseconds of a question, the best of several rounds.
fn cost(service: &Service, queries: &[Vec<u8>], passing: bool) -> f64 {
    let round = |_| {
        let start = Instant::now();
        for query in queries {
            assert_eq!(passes(service, query), passing);
        }
        start.elapsed().as_secs_f64() * 1e6 / queries.len() as f64
    };
    (0..5).map(round).fold(f64::INFINITY, f64::min)
}

/// Megabytes of memory that the process has.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap_or_default() / 1024.0
}

fn figure(name: &str, value: f64, goal: Option<f64>) {
    let beside = goal.map_or_else(String::new, |goal| format!("   # {:.2} of the goal, {goal}", value / goal));
    println!("figure {name} {value:.3}{beside}");
}

/// Nanoseconds to microseconds at a part of all, which are sorted here.
fn percentile(all: &mut [u64], part: f64) -> f64 {
    all.sort_unstable();
    all.get(((all.len() as f64 - 1.0) * part) as usize).map_or(0.0, |nanoseconds| *nanoseconds as f64 / 1e3)
}

fn timed(service: &Service, queries: &[Vec<u8>], ends: &dyn Fn() -> bool) -> Vec<u64> {
    let mut took = Vec::new();
    for query in queries.iter().cycle() {
        let start = Instant::now();
        black_box(passes(service, query));
        took.push(start.elapsed().as_nanos() as u64);
        if took.len() % 1_000 == 0 && ends() {
            break;
        }
    }
    took
}

fn main() {
    if !std::env::args().skip(1).all(|argument| argument == "--bench") {
        return;
    }
    let folder = Folder(std::env::temp_dir().join(format!("namewall-bench-lists-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("there is a folder for temporary files");
    let listed = questions(name);
    let others = questions(|number| format!("www.shop{number}.ads{}.invalid", number % 5_000));
    let plain = service("firewall query {\nrefuse name == 'a.example'\ndefault allow\n}");
    let without = cost(&plain, &others, true);
    figure("lists_none_us", without, None);

    let list = folder.file("list");
    write(&list, "", name);
    let rule = format!("firewall query {{\nrefuse in-list(name, '{}')\ndefault allow\n}}", list.display());
    let before = memory();
    let start = Instant::now();
    let of_list = service(&rule);
    figure("lists_read_s", start.elapsed().as_secs_f64(), None);
    figure("lists_memory_mb", memory() - before, Some(100.0));
    figure("lists_miss_us", cost(&of_list, &others, true) - without, Some(1.0));
    let denied = cost(&plain, &[query("a.example")], false);
    figure("lists_hit_us", cost(&of_list, &listed, false) - denied, Some(1.0));
    reload(&of_list, &list, &others);
    drop(of_list);

    let hosts = folder.file("hosts");
    write(&hosts, "", |number| format!("0.0.0.0 {}", name(number)));
    let before = memory();
    let of_hosts = service(&format!("hosts {} {{\nfallthrough\n}}", hosts.display()));
    figure("lists_hosts_memory_mb", memory() - before, Some(100.0));
    figure("lists_hosts_miss_us", cost(&of_hosts, &others, true) - without, Some(1.0));
    drop(of_hosts);

    let zone = folder.file("zone");
    let head = "$TTL 60\n@ SOA ns host 1 3600 600 86400 60\n";
    write(&zone, head, |number| format!("{} CNAME .", name(number)));
    let before = memory();
    let of_zone = service(&format!("rpz policy.example file {}", zone.display()));
    figure("lists_rpz_memory_mb", memory() - before, None);
    figure("lists_rpz_miss_us", cost(&of_zone, &others, true) - without, Some(1.0));
}

/// How long questions take while the list is replaced, against how long they take else.
fn reload(service: &Service, list: &Path, queries: &[Vec<u8>]) {
    let began = Instant::now();
    let mut alone = timed(service, queries, &|| began.elapsed() > Duration::from_secs(3));
    let is_done = Arc::new(AtomicBool::new(false));
    let marker = query("marker.example");
    let (done, path, watched, of_marker) = (is_done.clone(), list.to_owned(), service.clone(), marker.clone());
    let writer = std::thread::spawn(move || {
        write(&path, "marker.example\n", name);
        while passes(&watched, &of_marker) {
            std::thread::sleep(Duration::from_millis(50));
        }
        // What was replaced is freed now.
        std::thread::sleep(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
    });
    let mut during = timed(service, queries, &|| is_done.load(Ordering::Relaxed));
    writer.join().expect("the list is read again");
    assert!(!passes(service, &marker));
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p9999", 0.9999)] {
        let (alone, during) = (percentile(&mut alone, part), percentile(&mut during, part));
        figure(&format!("lists_reload_{name}_us"), during, None);
        figure(&format!("lists_alone_{name}_us"), alone, None);
    }
}
