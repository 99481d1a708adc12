//! The packets that are measured read their lists to the end.

use namewall_bench::crowd::{Crowd, PORT, Pair, TCP, UDP};
use namewall_policy::port::Protocol;
use namewall_policy::program::RuleId;
use namewall_policy::{Cause, Flow, LeaseTable, Program, Reason, Severity, compile, evaluate};

fn compiled(policies: usize) -> Program {
    let lowered = Crowd { policies }.lowered();
    let (program, findings) = compile(&lowered.snapshot);
    let errors = lowered.findings.iter().chain(&findings).filter(|finding| finding.severity == Severity::Error);
    assert_eq!(errors.map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(lowered.snapshot.policies.len(), policies);
    program
}

fn reason(program: &Program, pair: Pair, protocol: Protocol, port: u16) -> Reason {
    let [from, to] = [pair.client, pair.server].map(|address| program.endpoint_at(address.into()));
    let flow = Flow { from, to, protocol, port, via: None, hop: None, masker: None };
    evaluate(program, &LeaseTable::default(), &flow, Default::default()).reason
}

#[test]
fn the_last_rule_of_the_last_policy_allows() {
    for policies in [10, 100] {
        let program = compiled(policies);
        let text = |rule: RuleId| {
            let rule = program.rule(rule);
            format!("{} {} rule {}", program.policy(rule.policy).id, rule.direction, rule.index)
        };
        for (app, pair, protocol) in [(0, TCP, Protocol::Tcp), (1, UDP, Protocol::Udp)] {
            let Reason::Allowed { egress: Cause::Rule(egress), ingress: Cause::Rule(ingress) } =
                reason(&program, pair, protocol, PORT)
            else {
                panic!("{protocol:?} is not allowed by rules")
            };
            let last = format!("NetworkPolicy/team-0/app-{app}-2");
            assert_eq!(text(egress), format!("{last} egress rule 2"));
            assert_eq!(text(ingress), format!("{last} ingress rule 2"));
        }
        assert!(matches!(reason(&program, TCP, Protocol::Tcp, PORT + 1), Reason::Denied { .. }));
    }
}
