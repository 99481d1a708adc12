//! How the namewall of this node is doing, by its answer to `status`.

use super::Check;
use serde_json::Value;

pub(super) fn look(told: &Value) -> Vec<Check> {
    if let Some(held) = told["held"].as_str() {
        let advice = "mend what it says; the start goes on by itself";
        return vec![Check::missing("namewall", format!("waits with its start: {held}"), advice)];
    }
    let mut checks = vec![Check::good("namewall", "runs here")];
    checks.extend(policies(told));
    checks.extend(storage(&told["storage"]));
    checks.extend(dns(&told["dns"]));
    checks.extend(sharing(&told["shared"]));
    checks.extend(unresolved(&told["unresolvedNames"]));
    checks.extend([guard(&told["guard"]), second(&told["second"])]);
    checks
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether what is enforced is what policies say now.
fn policies(told: &Value) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(error) = told["lastError"].as_str() {
        let advice = "look at the log; it is tried again until it succeeds";
        checks.push(Check::missing("enforcing", format!("the last change is not in the kernel: {error}"), advice));
    }
    let kept = texts(&told["keptFiles"]);
    if !kept.is_empty() {
        let found = format!("cannot be read, so an older version is enforced: {}", kept.join(", "));
        checks.push(Check::missing("manifests", found, "`namewall check` says what is wrong in them"));
    }
    let errors = texts(&told["findings"]).into_iter().filter(|text| text.starts_with("error"));
    if let Some(first) = errors.clone().next() {
        let found = format!("{} errors, the first: {first}", errors.count());
        checks.push(Check::missing("policies", found, "`namewall status` lists them"));
    }
    let networks = texts(&told["findings"]).into_iter().find(|text| text.starts_with("warning[local-network]"));
    checks.extend(networks.map(|found| {
        Check::hint("nodes", found, "deny these networks by `networks`, or use local routes to single addresses")
    }));
    for one in told["trouble"].as_array().into_iter().flatten() {
        let found = format!("cannot watch {}: {}", one["kind"].as_str().unwrap_or_default(), one["what"]);
        checks.push(Check::missing("cluster", found, "look at the API server, and at the rights of the agent"));
    }
    checks
}

fn storage(told: &Value) -> Option<Check> {
    let advice = "free space in the state folder, or mend its rights: after a restart now, less would be known";
    let problem = ["failure", "lost", "standsIn"].into_iter().find_map(|key| told[key].as_str());
    problem.map(|problem| Check::missing("state", problem, advice))
}

fn dns(told: &Value) -> Option<Check> {
    let all = told["upstreams"].as_array()?;
    let address = |one: &Value| one["address"].as_str().unwrap_or_default().to_owned();
    let down: Vec<String> = all.iter().filter(|one| one["up"].as_bool() != Some(true)).map(address).collect();
    let advice = "look whether these servers run and can be reached from this node";
    let without_answer = |one: &&Value| one["answered"].as_u64() == Some(0);
    let has_failed = |one: &&Value| one["failed"].as_u64().is_some_and(|count| count > 0);
    let unproven: Vec<&Value> = all.iter().filter(without_answer).collect();
    let failed: Vec<String> = unproven.iter().copied().filter(has_failed).map(address).collect();
    match down.len() {
        0 if all.is_empty() => None,
        0 if !failed.is_empty() => Some(Check::hint(
            "DNS",
            format!("these upstream servers were asked and have not answered yet: {}", failed.join(", ")),
            advice,
        )),
        0 if unproven.len() == all.len() => Some(Check::good("DNS", "no upstream server was asked yet")),
        0 => Some(Check::good("DNS", "all upstream servers answer")),
        count if count == all.len() => Some(Check::missing(
            "DNS",
            format!("no upstream server answers, so no name opens: {}", down.join(", ")),
            advice,
        )),
        _ => Some(Check::hint("DNS", format!("some upstream servers do not answer: {}", down.join(", ")), advice)),
    }
}

fn sharing(told: &Value) -> Option<Check> {
    if let Some(why) = told["blocked"].as_str() {
        let advice = "look at the roles of namewall's service accounts, at quotas and webhooks, and at the API server";
        return Some(Check::missing("sharing", format!("names are not shared with other nodes: {why}"), advice));
    }
    let trouble = told["lastTrouble"].as_str()?;
    let advice = "other nodes open this name only after a lookup of their own";
    Some(Check::hint("sharing", format!("the last failure to share a name: {trouble}"), advice))
}

fn unresolved(told: &Value) -> Option<Check> {
    let all = texts(told);
    let first = all.first()?;
    let more = if all.len() > 1 { format!(" (and {} more)", all.len() - 1) } else { String::new() };
    let advice = "look whether the name is written right; `namewall status` lists all such names";
    Some(Check::hint("names", format!("{first}{more}"), advice))
}

/// Whether the interfaces of pods are guarded, by what the namewall of this node says.
fn guard(told: &Value) -> Check {
    let unknown = told["unknown"].as_array().map_or(0, Vec::len);
    let lacking = texts(&told["lacking"]);
    if !lacking.is_empty() && told["error"].is_null() {
        return Check::missing("guard", lacking.join("; "), "use a kernel with these parts of nftables");
    }
    match told["error"].as_str() {
        Some(error) => Check::missing(
            "guard",
            format!("the interfaces of pods are not guarded, so that a pod can send as another: {error}"),
            "load the kernel's part of nftables for netdev and bridge tables, on Linux 6.12 or newer",
        ),
        None if unknown > 0 => Check::hint(
            "guard",
            format!(
                "no interface is known of {unknown} addresses of pods, so that others could send from them{}",
                told["runtime"]["error"].as_str().map(|error| format!("; {error}")).unwrap_or_default()
            ),
            match told["runtime"].is_null() {
                true => "install the CNI plugin (cni.enabled of the chart) and start those pods again",
                false => {
                    "say where the container runtime answers (cni.runtimeSocket of the chart), or start those pods again"
                }
            },
        ),
        None => Check::good("guard", format!("{} interfaces of pods are guarded", told["interfaces"])),
    }
}

/// Whether policies are enforced on second interfaces of pods, by what the namewall of this node says.
fn second(told: &Value) -> Check {
    let failures = told["failures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (unreached, repaired) = (told["unreached"].as_u64().unwrap_or(0), told["repaired"].as_u64().unwrap_or(0));
    match (failures.first().and_then(Value::as_str), told["frames"].as_str()) {
        (Some(failure), _) => Check::missing(
            "second interfaces",
            format!("of {} pods are not enforced: {failure}", failures.len()),
            "see the log of namewall; load the kernel's part of nftables for inet and netdev tables",
        ),
        _ if unreached > 0 => Check::hint(
            "second interfaces",
            format!("of {unreached} pods are not judged by policies: {}", listed(&told["unreachedPods"])),
            "start those pods again, so that the CNI plugin attaches them; if it has, see the log of the sidecar cni \
             (cni.enabled of the chart)",
        ),
        _ if repaired > 0 => Check::hint(
            "second interfaces",
            format!(
                "somebody changed namewall's tables inside pods {repaired} times, last in {}; they were made right",
                told["lastRepaired"].as_str().unwrap_or("a pod that is gone")
            ),
            "find the pods in the log of namewall, and take NET_ADMIN from them",
        ),
        _ if told["unlogged"].as_array().is_some_and(|some| !some.is_empty()) => Check::hint(
            "second interfaces",
            format!("denials there are not logged: {}", listed(&told["unlogged"])),
            "choose another log group (--log-group), or take NET_ADMIN from the pod",
        ),
        (_, Some("none" | "sources")) => Check::hint(
            "second interfaces",
            "what packet sockets of pods send there is not judged in full",
            "use a kernel with CONFIG_NETFILTER_EGRESS and CONFIG_IP_ROUTE_CLASSID",
        ),
        _ => Check::good("second interfaces", format!("policies hold in the namespaces of {} pods", told["reached"])),
    }
}

/// So many names are shown.
const LISTED: usize = 5;

/// The first of some names, and how many more there are.
fn listed(names: &Value) -> String {
    let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let more = names.len().saturating_sub(LISTED);
    let some = names[..names.len().min(LISTED)].join(", ");
    if more > 0 { format!("{some} and {more} more (`namewall status`)") } else { some }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use serde_json::json;

    fn worst(told: &Value) -> State {
        let states: Vec<State> = look(told).into_iter().map(|check| check.state).collect();
        let has = |wanted: State| states.contains(&wanted);
        if has(State::Missing) {
            State::Missing
        } else if has(State::Hint) {
            State::Hint
        } else {
            State::Good
        }
    }

    fn healthy() -> Value {
        json!({
            "findings": ["warning[x] a note"], "keptFiles": [], "lastError": null, "trouble": [],
            "storage": {"failure": null, "lost": null, "standsIn": null},
            "dns": {"upstreams": [{"address": "192.0.2.53", "up": true}, {"address": "192.0.2.54", "up": true}]},
            "shared": null, "second": {"reached": 0, "unreached": 0, "frames": "full", "failures": []}, "guard": {"interfaces": 3, "unknown": [], "error": null},
        })
    }

    #[test]
    fn every_fault_that_status_knows_is_told_of() {
        assert_eq!(worst(&healthy()), State::Good);
        let change = |path: &str, value: Value| {
            let mut told = healthy();
            *told.pointer_mut(path).expect("it is there") = value;
            worst(&told)
        };
        assert_eq!(change("/dns/upstreams/0/up", json!(false)), State::Hint);
        let silent = |failed: u64| json!({"address": "192.0.2.53", "up": true, "answered": 0, "failed": failed});
        assert_eq!(change("/dns/upstreams/0", silent(0)), State::Good);
        assert_eq!(change("/dns/upstreams/0", silent(1)), State::Hint);
        assert_eq!(change("/dns/upstreams", json!([{"address": "192.0.2.53", "up": false}])), State::Missing);
        assert_eq!(change("/keptFiles", json!(["a.yaml"])), State::Missing);
        assert_eq!(change("/findings", json!(["error[bad-action] a"])), State::Missing);
        assert_eq!(change("/findings", json!(["warning[local-network] Node n1: a"])), State::Hint);
        assert_eq!(change("/lastError", json!("EBUSY")), State::Missing);
        assert_eq!(change("/storage/failure", json!("no space left")), State::Missing);
        assert_eq!(change("/trouble", json!([{"kind": "Pod", "what": "refused"}])), State::Missing);
        assert_eq!(change("/shared", json!({"lastTrouble": "my_bucket"})), State::Hint);
        assert_eq!(change("/shared", json!({"blocked": "forbidden", "lastTrouble": null})), State::Missing);
        assert_eq!(worst(&json!({"held": "conf cannot be read"})), State::Missing);
    }

    #[test]
    fn pods_without_a_guard_are_told_of() {
        let state = |unknown: &[&str], error: Option<&str>| {
            guard(&json!({"interfaces": 3, "unknown": unknown, "error": error})).state
        };
        assert_eq!(state(&[], None), State::Good);
        assert_eq!(state(&["10.0.0.1"], None), State::Hint);
        assert_eq!(state(&[], Some("the kernel has no netdev tables")), State::Missing);
        let lacking = guard(&json!({"interfaces": 3, "unknown": [], "error": null, "lacking": ["no hook for frames"]}));
        assert_eq!((lacking.state, lacking.found.as_str()), (State::Missing, "no hook for frames"));
    }

    #[test]
    fn second_interfaces_that_are_not_enforced_are_told_of() {
        let state = |told: Value| second(&told).state;
        assert_eq!(state(json!({"reached": 2, "unreached": 0, "frames": "full", "failures": []})), State::Good);
        let unreached = json!({"reached": 2, "unreached": 1, "unreachedPods": ["shop/web"], "failures": []});
        assert_eq!(state(unreached.clone()), State::Hint);
        assert!(second(&unreached).found.contains("shop/web"), "a pod that is not judged is named");
        assert_eq!(state(json!({"reached": 2, "repaired": 1, "failures": []})), State::Hint);
        assert_eq!(state(json!({"reached": 2, "frames": "sources", "failures": []})), State::Hint);
        assert_eq!(state(json!({"reached": 2, "failures": ["shop/web: no rights"]})), State::Missing);
    }
}
