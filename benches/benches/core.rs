//! What the core costs on large clusters, without files and processes around
//! it. After divan's table come `figure NAME VALUE` lines, each the best of
//! several tries, which `scripts/bench` holds against the goals.
//!
//! `NAMEWALL_COUNT=compile` or `evaluate` runs just that, once, in a function
//! of its own name, so that valgrind can count its instructions.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use namewall_bench::Cluster;
use namewall_bench::flows::flows;
use namewall_cluster::{Document, Lowered, Settings, lower};
use namewall_policy::domain::{DomainName, DomainPattern, PatternTable};
use namewall_policy::reach::{Matrix, Reach};
use namewall_policy::{Flow, Instant, LeaseTable, Program, Snapshot, compile, evaluate, explain};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant as Clock};

const FLOWS: usize = 10_000;
const PATTERNS: usize = 10_000;
const NOW: Instant = Instant(Duration::ZERO);

static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| Cluster::default().documents());
static ONCE: LazyLock<Compiled> = LazyLock::new(|| Compiled::of(Cluster::default()));
static TWICE: LazyLock<Compiled> = LazyLock::new(|| Compiled::of(Cluster::default().with_twice_the_pods()));
static PODS: LazyLock<Compiled> = LazyLock::new(|| Compiled::of(Cluster::of_workloads(2_000)));
static TEMPLATES: LazyLock<Compiled> =
    LazyLock::new(|| Compiled::of(Cluster { templates: true, ..Cluster::of_workloads(2_000) }));

/// A cluster and the connections to be judged in it.
struct Compiled {
    snapshot: Snapshot,
    program: Program,
    leases: LeaseTable,
    flows: Vec<Flow>,
}

impl Compiled {
    fn of(cluster: Cluster) -> Self {
        let snapshot = cluster.lowered().snapshot;
        let (program, _) = compile(&snapshot);
        let flows = flows(&snapshot, &program, FLOWS);
        Self { snapshot, program, leases: LeaseTable::default(), flows }
    }

    fn evaluate_all(&self) {
        for flow in &self.flows {
            black_box(evaluate(&self.program, &self.leases, black_box(flow), NOW));
        }
    }

    /// Every pair, and every workload's outside: what `namewall matrix` asks for.
    fn matrix(&self) {
        let reach = Reach { program: &self.program, leases: &self.leases, now: NOW };
        let matrix = Matrix::new(&self.snapshot, reach);
        for from in self.snapshot.workload_ids() {
            for to in self.snapshot.workload_ids() {
                black_box(matrix.between(from, to));
            }
            black_box((matrix.outside_to(from), matrix.outside_from(from)));
        }
    }
}

fn main() {
    if let Ok(what) = std::env::var("NAMEWALL_COUNT") {
        return count(&what);
    }
    divan::main();
    // Who asks for a part, or for a list, wants no figures.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        print_figures();
    }
}

#[divan::bench(sample_count = 20)]
fn compile_10k_pods(bencher: Bencher<'_, '_>) {
    bencher.bench(|| compile(black_box(&ONCE.snapshot)));
}

#[divan::bench(sample_count = 20)]
fn compile_20k_pods_of_the_same_labels(bencher: Bencher<'_, '_>) {
    bencher.bench(|| compile(black_box(&TWICE.snapshot)));
}

#[divan::bench(sample_count = 20)]
fn evaluate_10k_flows(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(FLOWS)).bench(|| ONCE.evaluate_all());
}

#[divan::bench(sample_count = 20)]
fn explain_10k_flows(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(FLOWS)).bench(|| {
        let reach = Reach { program: &ONCE.program, leases: &ONCE.leases, now: NOW };
        for flow in &ONCE.flows {
            black_box(explain(&ONCE.snapshot, &reach, black_box(flow)));
        }
    });
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn matrix_2k_pods(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(2_000_usize * 2_000)).bench(|| PODS.matrix());
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn matrix_2k_deployments(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(2_000_usize * 2_000)).bench(|| TEMPLATES.matrix());
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn lower_10k_pods(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(DOCUMENTS.len())).bench(lower_all);
}

/// On one core; `load` takes them all.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn read_yaml_of_10k_pods(bencher: Bencher<'_, '_>) {
    let files = Cluster::default().files();
    let text: String = files.into_iter().map(|file| file.text).collect();
    let name: Arc<str> = "cluster.yaml".into();
    bencher.counter(BytesCount::of_str(&text)).bench(|| Document::read_all(&name, black_box(&text)));
}

#[divan::bench(sample_count = 20)]
fn find_patterns_among_10k(bencher: Bencher<'_, '_>) {
    let (table, names) = patterns();
    bencher.counter(ItemsCount::new(names.len())).bench(|| {
        for name in &names {
            black_box(table.matching(black_box(name)));
        }
    });
}

fn lower_all() -> Lowered {
    lower(black_box(&**DOCUMENTS), &Settings::default())
}

/// Of every three patterns one is exact and two are wildcards; of every two names one matches.
/// A table, and names of which every second one matches.
fn patterns() -> (PatternTable, Vec<DomainName>) {
    let (table, patterns) = namewall_bench::patterns::patterns(PATTERNS);
    let name = |(number, pattern): (usize, &DomainPattern)| match number % 2 {
        0 => pattern.example(),
        _ => format!("a.b{number}.elsewhere.example").parse().expect("it is a name"),
    };
    (table, patterns.iter().enumerate().map(name).collect())
}

fn seconds(action: impl FnOnce()) -> f64 {
    let start = Clock::now();
    action();
    start.elapsed().as_secs_f64()
}

fn best(tries: usize, mut action: impl FnMut()) -> f64 {
    (0..tries).map(|_| seconds(&mut action)).fold(f64::INFINITY, f64::min)
}

fn print_figures() {
    let figure = |name: &str, value: f64| println!("figure {name} {value:.4}");
    // By turns, so that a noisy moment falls on both.
    let (mut once, mut twice) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..15 {
        once = once.min(seconds(|| drop(compile(black_box(&ONCE.snapshot)))));
        twice = twice.min(seconds(|| drop(compile(black_box(&TWICE.snapshot)))));
    }
    figure("compile_ms", once * 1e3);
    figure("compile_twice_ms", twice * 1e3);
    figure("compile_ratio", twice / once);

    figure("flows_per_second", FLOWS as f64 / best(25, || ONCE.evaluate_all()));
    let slowest = ONCE.flows.iter().map(|flow| best(5, || drop_decision(flow))).fold(0.0, f64::max);
    figure("slowest_evaluation_ms", slowest * 1e3);
    figure("matrix_pods_ms", best(3, || PODS.matrix()) * 1e3);
    figure("matrix_deployments_ms", best(3, || TEMPLATES.matrix()) * 1e3);
    figure("lower_ms", best(3, || drop(lower_all())) * 1e3);
}

fn drop_decision(flow: &Flow) {
    black_box(evaluate(&ONCE.program, &ONCE.leases, black_box(flow), NOW));
}

fn count(what: &str) {
    LazyLock::force(&ONCE);
    match what {
        "compile" => counted_compile(),
        "evaluate" => counted_evaluate(),
        other => eprintln!("NAMEWALL_COUNT is compile or evaluate, not `{other}`"),
    }
}

#[inline(never)]
fn counted_compile() {
    black_box(compile(black_box(&ONCE.snapshot)));
}

#[inline(never)]
fn counted_evaluate() {
    black_box(&*ONCE).evaluate_all();
}
