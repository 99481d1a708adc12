//! The packets that are measured read their lists to the end.

use namewall_bench::crowd::{Crowd, PORT, Pair, TCP, UDP};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, LeaseTable, Severity, Verdict, compile, evaluate};

fn verdict(crowd: Crowd, pair: Pair, protocol: Protocol, port: u16) -> String {
    let lowered = crowd.lowered();
    let (program, findings) = compile(&lowered.snapshot);
    let errors = lowered.findings.iter().chain(&findings).filter(|finding| finding.severity == Severity::Error);
    assert_eq!(errors.map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(lowered.snapshot.policies.len(), crowd.policies);
    let [from, to] = [pair.client, pair.server].map(|address| program.endpoint_at(address.into()));
    let flow = Flow { from, to, protocol, port, via: None };
    let decision = evaluate(&program, &LeaseTable::default(), &flow, Default::default());
    let allowed = decision.verdict == Verdict::Allow;
    format!("{} {:?}", if allowed { "allow" } else { "deny" }, decision.reason)
}

#[test]
fn the_last_rule_of_the_last_policy_allows() {
    for policies in [10, 100] {
        for (pair, protocol) in [(TCP, Protocol::Tcp), (UDP, Protocol::Udp)] {
            let said = verdict(Crowd { policies }, pair, protocol, PORT);
            assert!(said.starts_with("allow"), "{said}");
        }
        let said = verdict(Crowd { policies }, TCP, Protocol::Tcp, PORT + 1);
        assert!(said.starts_with("deny"), "{said}");
    }
}
