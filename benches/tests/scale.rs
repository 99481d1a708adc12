//! What makes namewall fast on large clusters, held by counts that no noisy
//! machine can blur: selectors are matched once a Role, rules once a policy.

use namewall_bench::Cluster;
use namewall_bench::flows::flows;
use namewall_policy::reach::{Matrix, Reach};
use namewall_policy::{Instant, LeaseTable, Program, Severity, Snapshot, Verdict, compile, evaluate};

const SMALL: Cluster = Cluster { pods: 600, namespaces: 24, policies: 150, nodes: 10, replicas: 3, templates: false };

fn compiled(cluster: &Cluster) -> (Snapshot, Program) {
    let lowered = cluster.lowered();
    let (program, findings) = compile(&lowered.snapshot);
    let errors = lowered.findings.iter().chain(&findings).filter(|finding| finding.severity == Severity::Error);
    assert_eq!(errors.map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new(), "{cluster:?}");
    (lowered.snapshot, program)
}

#[test]
fn clusters_are_as_asked_for_and_without_error() {
    for cluster in [SMALL, Cluster { templates: true, replicas: 1, pods: 200, ..SMALL }] {
        let (snapshot, _) = compiled(&cluster);
        let sizes = (snapshot.workloads.len(), snapshot.namespaces.len(), snapshot.policies.len());
        assert_eq!(sizes, (cluster.pods, cluster.namespaces, cluster.policies), "{cluster:?}");
    }
}

#[test]
fn clusters_are_the_same_every_time() {
    let texts = |cluster: Cluster| cluster.files().into_iter().map(|file| file.text).collect::<String>();
    assert_eq!(texts(SMALL), texts(SMALL));
}

#[test]
fn more_pods_of_the_same_labels_add_no_rules() {
    let (once, single) = compiled(&SMALL);
    let (twice, double) = compiled(&SMALL.with_twice_the_pods());
    assert_eq!(twice.workloads.len(), 2 * once.workloads.len());
    let counts = |snapshot: &Snapshot, program: &Program| {
        let Program { classes, rules, peer_sets, port_specs, .. } = program;
        [snapshot.roles.len(), classes.len(), rules.len(), peer_sets.len(), port_specs.len()]
    };
    assert_eq!(counts(&once, &single), counts(&twice, &double), "roles, classes, rules, peer sets, port specs");
    assert!(once.roles.len() * 2 < once.workloads.len(), "pods share Roles");
    assert!(single.peer_sets.len() < single.rules.len(), "rules share peer sets");
}

#[test]
fn flows_are_allowed_and_denied_and_the_matrix_agrees() {
    let (snapshot, program) = compiled(&SMALL);
    let (leases, now) = (LeaseTable::default(), Instant::default());
    let matrix = Matrix::new(&snapshot, Reach { program: &program, leases: &leases, now });
    let (mut allowed, mut denied) = (0, 0);
    for flow in flows(&snapshot, &program, 2_000) {
        let verdict = evaluate(&program, &leases, &flow, now).verdict;
        match verdict {
            Verdict::Allow => allowed += 1,
            Verdict::Deny => denied += 1,
        }
        if let (Some(from), Some(to)) = (flow.from.workload, flow.to.workload) {
            let open = matrix.cell(matrix.between(from, to));
            assert_eq!(open.open.contains(flow.protocol, flow.port), verdict == Verdict::Allow, "{flow:?}");
        }
    }
    assert!(allowed > 200 && denied > 200, "{allowed} allowed, {denied} denied");
}
