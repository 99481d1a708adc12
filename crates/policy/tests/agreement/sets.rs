//! The sets of `reach` against the naive evaluator: a set holds a connection
//! exactly if the connection is allowed; a matrix holds the union over the
//! addresses two workloads may speak by; a range of the outside speaks for
//! every address in it. And `explain` decides as `evaluate` does.

use crate::generate::{Case, PORTS, cases, flow_text};
use crate::naive::{World, predict};
use namewall_policy::addr::AddrSet;
use namewall_policy::diff::{Side, diff};
use namewall_policy::model::WorkloadId;
use namewall_policy::port::{Protocol, Traffic};
use namewall_policy::reach::{GroupId, GroupPair, Groups, Matrix, OutsideRange, Reach, Reachable};
use namewall_policy::{
    Condition, Endpoint, Flow, LeaseTable, Prediction, Program, Snapshot, compile, evaluate, explain,
};
use proptest::test_runner::{TestCaseError, TestRunner};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

const PROTOCOLS: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Icmp];

type Outcome = Result<(), TestCaseError>;

fn each_case(count: u32, check: impl Fn(&Case, &Program, &LeaseTable) -> Outcome) {
    let result = TestRunner::new(crate::config(count)).run(&cases(), |case| {
        let (program, _) = compile(&case.snapshot);
        let mut leases = LeaseTable::default();
        case.leases.iter().for_each(|lease| drop(leases.grant(lease.clone())));
        check(&case, &program, &leases)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The set says of every port of interest what the naive evaluator says.
fn holds(case: &Case, traffic: &Reachable, from: &Endpoint, to: &Endpoint) -> Outcome {
    let world = World { snapshot: &case.snapshot, leases: &case.leases, now: case.now };
    for protocol in PROTOCOLS {
        for port in PORTS {
            let flow = Flow { from: from.clone(), to: to.clone(), protocol, port, via: None, hop: None, masker: None };
            let predicted = match (traffic.open.contains(protocol, port), traffic.possible.contains(protocol, port)) {
                (true, true) => Prediction::Allow,
                (false, true) => Prediction::Depends,
                (false, false) => Prediction::Deny,
                (true, false) => {
                    return Err(TestCaseError::fail(format!("surely open, but not possible: {traffic:?}")));
                }
            };
            let naive = predict(world, &flow, &[]);
            if predicted != naive {
                let flow = flow_text(&case.snapshot, &flow);
                return Err(TestCaseError::fail(format!("{flow}: naive: {naive}, the set is {traffic:?}")));
            }
        }
    }
    Ok(())
}

#[test]
fn reach_holds_just_what_is_allowed() {
    each_case(150, |case, program, leases| {
        let reach = Reach { program, leases, now: case.now };
        for Flow { from, to, .. } in &case.flows {
            holds(case, &reach.between(from, to), from, to)?;
        }
        Ok(())
    });
}

#[test]
fn the_matrix_is_the_union_over_addresses() {
    each_case(150, |case, program, leases| {
        let reach = Reach { program, leases, now: case.now };
        let matrix = Matrix::new(&case.snapshot, reach);
        for from in case.snapshot.workload_ids() {
            for to in case.snapshot.workload_ids() {
                let (sources, targets) =
                    (program.endpoints(&case.snapshot, from), program.endpoints(&case.snapshot, to));
                let pairs = program.address_pairs(&sources, &targets).into_iter();
                let open = pairs.map(|(from, to)| reach.between(&from, &to));
                let open = open.reduce(|all, more| all.union(&more)).unwrap_or_default();
                let cell = matrix.cell(matrix.between(from, to));
                if *cell != open {
                    let (from, to) = (case.snapshot.workload_name(from), case.snapshot.workload_name(to));
                    return Err(TestCaseError::fail(format!("{from} -> {to}: the matrix has {cell:?}, not {open:?}")));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_row_speaks_for_every_pod_in_it() {
    each_case(150, |case, program, leases| {
        let reach = Reach { program, leases, now: case.now };
        let matrix = Matrix::new(&case.snapshot, reach);
        let rows = Groups::by_workload(&matrix);
        let ids = || case.snapshot.workload_ids();
        // A template whose pods are there is shown by them.
        let shown = |id: &WorkloadId| rows.get(rows.of(*id)).members.contains(id);
        for (from, to) in ids().filter(shown).flat_map(|from| ids().filter(shown).map(move |to| (from, to))) {
            let cell = rows.cell(&matrix, rows.of(from), rows.of(to));
            let is_pod = !case.snapshot.workload(from).is_template();
            let own_node = cell.own_node && (matrix.is_own_node(from, to) || matrix.may_share_node(from, to));
            if (from == to && is_pod) || own_node {
                continue;
            }
            if cell.open != matrix.between(from, to) {
                let name = |id| case.snapshot.workload_name(id);
                let (open, row) = (matrix.cell(matrix.between(from, to)), matrix.cell(cell.open));
                return Err(TestCaseError::fail(format!("{} -> {}: {open}, the row has {row}", name(from), name(to))));
            }
        }
        for (_, row) in rows.iter() {
            for &id in &row.members {
                if matrix.outside_to(id) != matrix.outside_to(row.example())
                    || matrix.outside_across(id) != matrix.outside_across(row.example())
                    || matrix.names_to(id) != matrix.names_to(row.example())
                {
                    return Err(TestCaseError::fail(format!("{} has pods that fare differently outside", row.name)));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_range_speaks_for_every_address_in_it() {
    each_case(80, |case, program, leases| {
        let matrix = Matrix::new(&case.snapshot, Reach { program, leases, now: case.now });
        let asked: Vec<IpAddr> =
            case.flows.iter().flat_map(|flow| [flow.from.address, flow.to.address]).flatten().collect();
        for id in case.snapshot.workload_ids() {
            let pod = program.endpoints(&case.snapshot, id)[0].clone();
            let (to, from) = (matrix.outside_to(id), matrix.outside_from(id));
            apart(&to)?;
            apart(&from)?;
            let edges = to.iter().chain(&*from).flat_map(|outside| [outside.range.first, outside.range.last]);
            let asked: BTreeSet<IpAddr> = asked.iter().copied().chain(edges).collect();
            for outside in asked {
                let end = program.endpoint_at(outside);
                // Pods, and the addresses they may get, are not outside.
                if end.workload.is_some() || program.pod_networks.contains(outside) {
                    continue;
                }
                holds(case, covering(&to, outside)?, &pod, &end)?;
                holds(case, covering(&from, outside)?, &end, &pod)?;
            }
        }
        Ok(())
    });
}

fn apart(ranges: &[OutsideRange]) -> Outcome {
    let mut seen = AddrSet::default();
    for outside in ranges {
        let set: AddrSet = outside.range.into();
        if set.is_empty() || seen.intersects(&set) {
            return Err(TestCaseError::fail(format!("{} is empty or there twice", outside.range)));
        }
        seen = seen.union(&set);
    }
    Ok(())
}

fn covering(ranges: &[OutsideRange], address: IpAddr) -> Result<&Reachable, TestCaseError> {
    let found = ranges.iter().find(|outside| AddrSet::from(outside.range).contains(address));
    found.map(|outside| &outside.traffic).ok_or_else(|| TestCaseError::fail(format!("no range has {address}")))
}

/// Every connection that depends on something has a condition, and no other has one.
fn has_conditions<E: Debug>(traffic: &Reachable, conditions: impl FnOnce(&Traffic) -> Vec<Condition<E>>) -> Outcome {
    let depends = traffic.depends();
    let conditions = conditions(&depends);
    let said = conditions
        .iter()
        .fold(Traffic::none(), |all, condition| all.union(condition.part.as_ref().unwrap_or(&depends)));
    if said != depends || conditions.is_empty() != depends.is_none() {
        return Err(TestCaseError::fail(format!("{traffic} has conditions for {said}: {conditions:?}")));
    }
    Ok(())
}

/// The cluster as it is, and before any of its pods has an address or a node.
fn known_and_unknown(snapshot: &Snapshot) -> [Snapshot; 2] {
    let mut unknown = snapshot.clone();
    unknown.workloads.edit(|all| {
        for workload in all {
            workload.addresses = [].into();
            workload.node = None;
        }
    });
    [snapshot.clone(), unknown]
}

#[test]
fn s10_5_what_depends_says_on_what() {
    each_case(400, |case, _, leases| {
        for snapshot in known_and_unknown(&case.snapshot) {
            let (program, _) = compile(&snapshot);
            let reach = Reach { program: &program, leases, now: case.now };
            let ends: Vec<Endpoint> =
                snapshot.workload_ids().map(|id| program.endpoints(&snapshot, id)[0].clone()).collect();
            for (from, to) in ends.iter().flat_map(|from| ends.iter().map(move |to| (from, to))) {
                has_conditions(&reach.between(from, to), |asked| reach.depends_on(from, to, asked))?;
            }
        }
        Ok(())
    });
}

#[test]
fn s10_5_what_depends_in_a_matrix_says_on_what() {
    each_case(300, |case, _, leases| {
        for snapshot in known_and_unknown(&case.snapshot) {
            let (program, _) = compile(&snapshot);
            let matrix = Matrix::new(&snapshot, Reach { program: &program, leases, now: case.now });
            for rows in [Groups::by_pod(&matrix), Groups::by_workload(&matrix)] {
                for (from, _) in rows.iter() {
                    row_has_conditions(&matrix, &rows, from)?;
                }
            }
        }
        Ok(())
    });
}

#[test]
fn s10_5_what_depends_in_a_difference_says_on_what() {
    each_case(200, |case, _, leases| {
        let [_, new] = known_and_unknown(&case.snapshot);
        let mut old = new.clone();
        let half = old.policies.len() / 2;
        Arc::make_mut(&mut old.policies).truncate(half);
        let programs = [&old, &new].map(|snapshot| compile(snapshot).0);
        let matrix = |snapshot, program| Matrix::new(snapshot, Reach { program, leases, now: case.now });
        let (before, after) = (matrix(&old, &programs[0]), matrix(&new, &programs[1]));
        for by in [Groups::by_pod, Groups::by_workload] {
            let (old_rows, new_rows) = (by(&before), by(&after));
            let old = Side { snapshot: &old, matrix: &before, groups: &old_rows };
            let new = Side { snapshot: &new, matrix: &after, groups: &new_rows };
            for difference in diff(old, new) {
                let [was, is] = difference.depends_on(old, new);
                has_conditions(&difference.before, |_| was)?;
                has_conditions(&difference.after, |_| is)?;
            }
            let same = diff(new, new);
            if !same.is_empty() {
                return Err(TestCaseError::fail(format!("a cluster differs from itself: {same:?}")));
            }
        }
        Ok(())
    });
}

fn row_has_conditions(matrix: &Matrix<'_>, rows: &Groups, from: GroupId) -> Outcome {
    for (to, _) in rows.iter() {
        let cell = rows.cell(matrix, from, to);
        has_conditions(&matrix.cell(cell.open), |asked| rows.depends_on(matrix, GroupPair { from, to }, asked))?;
    }
    let id = rows.get(from).example();
    for range in matrix.outside_to(id).iter() {
        has_conditions(&range.traffic, |asked| matrix.outside_to_depends_on(id, range, asked))?;
    }
    for range in rows.outside_from(matrix, from).iter() {
        has_conditions(&range.traffic, |asked| matrix.outside_from_depends_on(range, id, asked))?;
    }
    for (pattern, traffic) in matrix.names_to(id).iter() {
        has_conditions(traffic, |asked| matrix.name_depends_on(id, pattern, asked))?;
    }
    Ok(())
}

#[test]
fn explain_decides_as_evaluate_does() {
    each_case(150, |case, program, leases| {
        for flow in &case.flows {
            let story = explain(&case.snapshot, &Reach { program, leases, now: case.now }, flow);
            let decision = evaluate(program, leases, flow, case.now);
            if story.decision != decision {
                return Err(TestCaseError::fail(format!(
                    "{}: {story:?}, not {decision:?}",
                    flow_text(&case.snapshot, flow)
                )));
            }
            if story.steps.is_empty() {
                return Err(TestCaseError::fail("a story without a step"));
            }
        }
        Ok(())
    });
}
