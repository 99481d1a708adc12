//! The binary as a user meets it: what it prints, its exit codes, and how it
//! takes misuse. Outputs people script against are pinned here.

use expect_test::{Expect, expect};
use namewall_testbed::run_with_input;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn namewall(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_namewall")).args(args).current_dir(ROOT).output().expect("it runs")
}

fn with_input(args: &[&str], input: &str) -> Output {
    run_with_input(env!("CARGO_BIN_EXE_namewall"), args, input)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

/// Runs a line of arguments and compares what is printed, standard error after standard output.
fn check(line: &str, code: i32, expect: Expect) {
    let output = namewall(&line.split_whitespace().collect::<Vec<_>>());
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    expect.assert_eq(&printed);
    assert_eq!(output.status.code(), Some(code), "{line}");
}

fn json(line: &str) -> serde_json::Value {
    let output = namewall(&line.split_whitespace().collect::<Vec<_>>());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// What an agent with the same settings never leases, offline commands do not take for open either.
#[test]
fn s6_8_settings_about_leases_count_offline_too() {
    let verdict = |answer: &str, more: &str| {
        let line = format!(
            "explain -o json --from shop/api --to api.payments.example:443 \
             --dns api.payments.example={answer} {more} examples/shop"
        );
        json(&line)["verdict"].as_str().map(str::to_owned)
    };
    let (allow, deny) = (Some("allow".to_owned()), Some("deny".to_owned()));
    assert_eq!(verdict("198.51.100.7", ""), allow);
    assert_eq!(verdict("198.51.100.7", "--never-lease 198.51.100.0/24"), deny);
    assert_eq!(verdict("198.51.100.7", "--never-lease 203.0.113.0/24"), allow);
    // A form of an address that is never leased, by a translator of this network.
    let form = "2001:db8:64::c633:6407";
    assert_eq!(verdict(form, "--never-lease 198.51.100.0/24"), allow);
    assert_eq!(verdict(form, "--never-lease 198.51.100.0/24 --nat64-prefix 2001:db8:64::/96"), deny);
    let output = namewall(&["check", "--nat64-prefix", "198.51.100.0/24", "examples/shop"]);
    assert!(text(&output.stderr).contains("is no IPv6 prefix of 32"), "{}", text(&output.stderr));
}

#[test]
fn explain_names_each_rule_with_file_and_line() {
    check(
        "explain --from shop/web --to shop/db:5432 examples/shop",
        0,
        expect![[r#"
            DENY  shop/web -> shop/db:5432/TCP
              shop/web is isolated for egress by NetworkPolicy/shop/web, and no rule allows this

            egress
              cluster gate: no rule matches
                · deny ClusterEgressFirewall/no-metadata egress rule 0 "metadata"  examples/shop/policies.yaml:105
                    none of its 2 peers matches; the first: 10.244.1.12 is not in 169.254.169.254/32
              NetworkPolicy tier: denied: isolated by NetworkPolicy/shop/web (examples/shop/policies.yaml:2), and no rule allows this
                · allow NetworkPolicy/shop/web egress rule 0  examples/shop/policies.yaml:15
                    shop/db does not have app=api
                · allow NetworkPolicy/shop/web egress rule 1  examples/shop/policies.yaml:20
                    namespace shop does not have kubernetes.io/metadata.name=kube-system
            ingress
              admin tier: no rule matches
                · allow ClusterNetworkPolicy/scrape ingress rule 0 "prometheus"  examples/shop/policies.yaml:86
                    namespace shop does not have team=ops
              NetworkPolicy tier: denied: isolated by NetworkPolicy/shop/db (examples/shop/policies.yaml:29), and no rule allows this
                · allow NetworkPolicy/shop/db ingress rule 0  examples/shop/policies.yaml:39
                    shop/web does not have app=api
        "#]],
    );
}

#[test]
fn explain_tells_the_lease_that_opened_an_address() {
    check(
        "explain --from shop/api --to api.payments.example:443 --dns api.payments.example=198.51.100.7 examples/shop",
        0,
        expect![[r#"
            ALLOW  shop/api -> api.payments.example:443/TCP
              egress by ClusterNetworkPolicy/shop-outside egress rule 0 "payments"; ingress no pod with policies of its own

            198.51.100.7: allow
            egress
              cluster gate: no rule matches
                · deny ClusterEgressFirewall/no-metadata egress rule 0 "metadata"  examples/shop/policies.yaml:105
                    none of its 2 peers matches; the first: 198.51.100.7 is not in 169.254.169.254/32
              admin tier: allowed
                ✓ allow ClusterNetworkPolicy/shop-outside egress rule 0 "payments"  examples/shop/policies.yaml:61
                    198.51.100.7 is leased to api.payments.example by api.payments.example; TCP 443
            ingress
              this end is no pod with policies of its own: allowed
        "#]],
    );
}

#[test]
fn explain_json_has_verdict_reason_and_steps() {
    let answer = json("explain -o json --from shop/web --to shop/db:5432/TCP examples/shop");
    assert_eq!(answer["verdict"], "deny");
    assert!(answer["reason"].as_str().is_some_and(|reason| reason.contains("NetworkPolicy/shop/web")));
    let rule = &answer["steps"][1]["rules"][0];
    assert_eq!(rule["policy"], "NetworkPolicy/shop/web");
    assert_eq!((&rule["source"]["file"], &rule["source"]["line"]), (&"examples/shop/policies.yaml".into(), &15.into()));
}

#[test]
fn explain_without_a_port_says_which_are_open() {
    let answer = json("explain -o json --from shop/web --to shop/api examples/shop");
    assert_eq!(answer["verdict"], "allow");
    assert_eq!(answer["allowed"]["TCP"], serde_json::json!(["9000"]));
}

#[test]
fn explain_goes_through_a_service_to_its_backends() {
    let by_address = json("explain -o json --from shop/web --to 10.96.0.12:5432 examples/shop");
    let by_name = json("explain -o json --from shop/web --to db.shop.svc.cluster.local:5432 examples/shop");
    for answer in [by_address, by_name] {
        assert_eq!(answer["verdict"], "deny");
        assert_eq!(answer["routes"][0]["route"], "Service shop/db to shop/db:5432/TCP");
    }
}

#[test]
fn expect_sets_the_exit_code() {
    let line = "explain --from shop/web --to shop/db:5432 examples/shop --expect";
    for (expected, code) in [("deny", 0), ("allow", 1)] {
        let args: Vec<&str> = line.split_whitespace().chain([expected]).collect();
        assert_eq!(namewall(&args).status.code(), Some(code), "{expected}");
    }
}

#[test]
fn matrix_json_keeps_its_form() {
    let matrix = json("matrix -o json examples/shop");
    let list = matrix.as_array().expect("it is a list");
    let find = |from: &str, to: &str| list.iter().find(|row| row["from"] == from && row["to"] == to);
    expect![[r#"{"from":"shop/web","to":"shop/api","allowed":{"TCP":["9000"],"UDP":[],"SCTP":[]},"kind":{"from":"Pod","to":"Pod"}}"#]]
        .assert_eq(&find("shop/web", "shop/api").expect("it is open").to_string());
    assert!(find("shop/web", "shop/db").is_none(), "pairs with nothing allowed are left out");
    let scraped = find("monitoring/prometheus", "shop/db").expect("it is open");
    assert_eq!(scraped["kind"]["from"], "Deployment");
    let outside = find("shop/db", "169.254.169.255-255.255.255.255").expect("it is open");
    assert_eq!(outside["allowed"]["TCP"], serde_json::json!(["1-65535"]));
}

#[test]
fn every_format_of_the_matrix_is_well_formed() {
    let starts =
        [("csv", "from,from_kind,"), ("dot", "digraph"), ("svg", "<svg"), ("html", "<!doctype"), ("md", "| from |")];
    for (format, start) in starts {
        let output = namewall(&["matrix", "-o", format, "--port", "53/UDP", "examples/shop"]);
        assert!(text(&output.stdout).starts_with(start), "{format}");
        assert!(output.status.success(), "{format}");
    }
}

#[test]
fn focus_and_port_narrow_the_matrix() {
    check(
        "matrix --focus shop/db --port 5432/TCP -o csv examples/shop",
        0,
        expect![[r#"
            from,from_kind,to,to_kind,tcp,udp,sctp,tcp_depends,udp_depends,sctp_depends,depends_on
            shop/api,Pod,shop/db,Pod,5432,,,,,,
            shop/db,Pod,shop/api,Pod,5432,,,,,,
            shop/db,Pod,shop/db,Pod,5432,,,,,,
            shop/db,Pod,kube-system/dns,Pod,5432,,,,,,
            shop/db,Pod,monitoring/prometheus,Deployment,5432,,,,,,
            shop/db,Pod,0.0.0.0-10.244.0.255,Outside,5432,,,,,,
            shop/db,Pod,10.244.2.0-169.254.169.253,Outside,5432,,,,,,
            shop/db,Pod,169.254.169.255-255.255.255.255,Outside,5432,,,,,,
            shop/db,Pod,::-fd00:ec2::253,Outside,5432,,,,,,
            shop/db,Pod,fd00:ec2::255-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,Outside,5432,,,,,,
            192.0.2.11-192.0.2.11,Outside,shop/db,Pod,5432,,,,,,
        "#]],
    );
}

#[test]
fn diff_tells_connections_not_lines() {
    check(
        "diff examples/shop examples/shop-change",
        1,
        expect![[r#"
            ~ shop/api -> shop/db: TCP 5432-5433  (was TCP 5432)
            + shop/web -> shop/db: TCP 5432-5433
            1 added, 0 removed, 1 changed
        "#]],
    );
    check(
        "diff examples/shop examples/shop",
        0,
        expect![[r#"
        The same connections are open before and after.
    "#]],
    );
}

#[test]
fn policies_are_listed_in_the_order_they_are_asked() {
    check(
        "policies shop/api examples/shop",
        0,
        expect![[r#"
            shop/api Pod · app=api
            cluster gate
              ClusterEgressFirewall/no-metadata priority 10, 1 egress rule, for all pods  examples/shop/policies.yaml:98
            egress, admin tier
              ClusterNetworkPolicy/shop-outside priority 20, 3 egress rules, for pods app=api in namespaces team=shop  examples/shop/policies.yaml:47
            ingress, admin tier
              ClusterNetworkPolicy/scrape priority 30, 1 ingress rule, for all pods  examples/shop/policies.yaml:76
            egress: not isolated by a NetworkPolicy
            ingress: not isolated by a NetworkPolicy
        "#]],
    );
}

#[test]
fn s10_2_a_broken_document_is_a_finding_and_the_rest_goes_on() {
    let input = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 'n'}\nstatus: {podIP: 10.0.0.1}\n---\nkind: [broken\n---\n\
                 apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: 'n'}\nspec:\n  podSelector: {}\n  ingress:\n  - ports:\n    - port: 99999\n";
    let output = with_input(&["check", "-o", "json", "-"], input);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(report["errors"], 2);
    let places: Vec<String> = report["findings"]
        .as_array()
        .expect("it is a list")
        .iter()
        .filter(|finding| finding["severity"] == "error")
        .map(|finding| format!("{}:{} {}", finding["source"]["line"], finding["source"]["column"], finding["path"]))
        .collect();
    assert_eq!(places, ["7:1 \"\"", "15:7 \"spec.ingress[0].ports[0].port\""]);
    let answer = with_input(&["explain", "--from", "10.9.9.9", "--to", "n/a:80", "-"], input);
    assert!(text(&answer.stdout).starts_with("DENY"), "an unreadable rule allows nothing, and its policy isolates");
}

#[test]
fn live_commands_refuse_what_cannot_be_meant() {
    check(
        "rules --live --pod shop/wbe examples/shop",
        2,
        expect![[r#"
            error: there is no pod shop/wbe with an address in the input
        "#]],
    );
    check(
        "rules --live --pod web examples/shop",
        2,
        expect![[r#"
            error: `web` is neither NAMESPACE/POD nor an address
        "#]],
    );
    check(
        "rules --live --namespace shpo examples/shop",
        2,
        expect![[r#"
            error: the input has no pod with an address in the namespace shpo
        "#]],
    );
    for command in [["uninstall", "--table", ""].as_slice(), &["rules", "--live", "--table", ""]] {
        let output = namewall(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(text(&output.stderr).contains("--table"), "{}", text(&output.stderr));
    }
    // A pattern is accepted: what is missing is an agent.
    let empty = std::env::temp_dir().join(format!("namewall-no-agent-{}", std::process::id()));
    let mut leases = Command::new(env!("CARGO_BIN_EXE_namewall"));
    let output =
        leases.args(["leases", "*.example.com"]).env("NAMEWALL_RUNTIME_DIR", &empty).output().expect("it runs");
    let told = text(&output.stderr);
    assert!(!told.contains("first label") && told.contains("no namewall runs here"), "{told}");
    let _ = std::fs::remove_dir_all(empty);
}

#[test]
fn misuse_says_what_to_do() {
    check(
        "explain --from shop/wbe --to shop/db:1 examples/shop",
        2,
        expect![[r#"
        error: there is no workload or Service shop/wbe in the input; did you mean shop/web?
    "#]],
    );
    check(
        "check no/such/path",
        2,
        expect![[r#"
        error: cannot read no/such/path: No such file or directory (os error 2)
    "#]],
    );
    for line in
        ["explain --from shop/web --to shop/db:0 examples/shop", "matrix", "explode", "matrix --port x examples/shop"]
    {
        let output = namewall(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(!output.stderr.is_empty(), "{line}");
    }
}

#[test]
fn every_command_shows_an_example() {
    for command in
        ["check", "explain", "matrix", "diff", "test", "policies", "audit-paths", "crds", "completions", "man"]
    {
        let help = text(&namewall(&[command, "--help"]).stdout);
        assert!(help.contains("Example"), "{command}");
        assert!(help.contains("Exit codes") || ["completions", "man"].contains(&command), "{command}");
    }
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let line = format!("{} matrix -o json examples/shop | head -c 1", env!("CARGO_BIN_EXE_namewall"));
    let output =
        Command::new("bash").args(["-o", "pipefail", "-c", &line]).current_dir(ROOT).output().expect("it runs");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    // Nobody reads, and the answer is still no.
    let line = format!("{} diff examples/shop examples/shop-change | true", env!("CARGO_BIN_EXE_namewall"));
    let output =
        Command::new("bash").args(["-o", "pipefail", "-c", &line]).current_dir(ROOT).output().expect("it runs");
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("", Some(1)));
}

#[test]
fn junit_reports_each_probe() {
    let report = text(&namewall(&["test", "-o", "junit", "examples/shop/scenario.yaml"]).stdout);
    assert!(report.contains(r#"tests="14" failures="0" errors="0""#), "{report}");
    assert!(report.contains("shop/web -&gt; shop/api:9000/TCP"), "{report}");
}

#[test]
fn a_failing_probe_is_told_readably() {
    let folder = std::env::temp_dir().join(format!("namewall-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("it is writable");
    let file = folder.join("fails.yaml");
    let scenario = "topology:\n  pods:\n    n/a: {ips: [10.0.0.1]}\n    n/b: {ips: [10.0.0.2]}\nsteps:\n  - connect: {x: n/a -> n/b:80/TCP}\n  - connections: {x: cut}\nprobes:\n  - n/a -> n/b:80/TCP: deny\n";
    std::fs::write(&file, scenario).expect("it is writable");
    let output = namewall(&["test", file.to_str().expect("it is text")]);
    let report = text(&namewall(&["test", "-o", "junit", file.to_str().expect("it is text")]).stdout);
    std::fs::remove_dir_all(&folder).ok();
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("connection x\n          expected  cut\n          got       open"), "{printed}");
    assert!(report.contains(r#"tests="2" failures="2" errors="0""#), "{report}");
    assert!(
        printed.contains("n/a -> n/b:80/TCP\n          expected  deny\n          got       allow: egress by default"),
        "{printed}"
    );
}

const TWO_PODS: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 'n'}\nstatus: {podIP: 10.0.0.1}\n---\n\
                        apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: 'n'}\nstatus: {podIP: 10.0.0.2}\n---\n";

fn verdict(args: &[&str], input: &str) -> String {
    let mut all = vec!["explain", "-o", "json", "--from", "n/a"];
    all.extend(args);
    all.push("-");
    let output = with_input(&all, input);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    answer["verdict"].as_str().expect("it is text").to_owned()
}

#[test]
fn with_and_without_a_port_the_same_rules_are_asked() {
    let firewall = "apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {name: f}\n\
                    spec: {priority: 1, rules: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]}\n---\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: 'n'}\nspec: {clusterIP: 10.96.0.5, ports: [{port: 80}]}\n---\n\
                   apiVersion: v1\nkind: Endpoints\nmetadata: {name: s, namespace: 'n'}\nsubsets: [{addresses: [{ip: 203.0.113.1}], ports: [{port: 80}]}]\n";
    let input = format!("{TWO_PODS}{firewall}{service}");
    for to in ["10.96.0.5", "s.n.svc", "s.n.svc.cluster.local", "n/s", "x.example"] {
        let dns = ["--dns", "x.example=203.0.113.1,198.51.100.1"];
        let with_port = format!("{to}:80");
        for target in [to, &with_port] {
            assert_eq!(verdict(&[&["--to", target], &dns[..]].concat(), &input), "deny", "{target}");
        }
    }
    // A name that only looks like a Service's is judged as a name.
    let name = "s.n.svc.evil.example:80";
    assert_eq!(verdict(&["--to", name], &input), "depends");
    assert_eq!(verdict(&["--to", name, "--dns", "s.n.svc.evil.example=198.51.100.9"], &input), "allow");
}

#[test]
fn a_headless_service_translates_no_port() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: 'n'}\n\
                   spec: {clusterIP: None, selector: {app: b}, ports: [{port: 80, targetPort: 99}]}\n---\n\
                   apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: 'n'}\n\
                   spec: {podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: 80}]}]}\n";
    let input = format!("{TWO_PODS}{service}").replace("name: b,", "name: b, labels: {app: b},");
    assert_eq!(verdict(&["--to", "n/s:80"], &input), "allow");
    assert_eq!(verdict(&["--to", "n/s:99"], &input), "deny");
}

#[test]
fn diff_tells_a_wildcard_of_one_label_from_one_of_many() {
    let folder = std::env::temp_dir().join(format!("namewall-diff-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("it is writable");
    let rest = "{type: Deny, to: {cidrSelector: 0.0.0.0/0}}";
    let one = format!(
        "{TWO_PODS}apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {{name: default, namespace: 'n'}}\nspec: {{egress: [{{type: Allow, to: {{dnsName: \"*.b.example\"}}}}, {rest}]}}\n"
    );
    let many = format!(
        "{TWO_PODS}apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {{name: f}}\nspec: {{priority: 1, rules: [{{action: Allow, to: [{{domainNames: [\"*.b.example\"]}}]}}, {{action: Deny, to: [{{networks: [0.0.0.0/0]}}]}}]}}\n"
    );
    std::fs::write(folder.join("one.yaml"), one).expect("it is writable");
    std::fs::write(folder.join("many.yaml"), many).expect("it is writable");
    let (one, many) = (folder.join("one.yaml"), folder.join("many.yaml"));
    let output = namewall(&["diff", one.to_str().expect("text"), many.to_str().expect("text")]);
    std::fs::remove_dir_all(&folder).ok();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("*.b.example (any subdomain)"), "{}", text(&output.stdout));
}

#[test]
fn the_definitions_of_kinds_are_printed() {
    let kinds = |arguments: &[&str]| -> Vec<String> {
        let output = namewall(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        // Of a definition; fields and names stand further to the right.
        let names = printed.lines().filter_map(|line| line.strip_prefix("  name: "));
        names.map(str::to_owned).collect()
    };
    let all = [
        "clusteregressfirewalls.namewall.dev",
        "nodeaddresses.namewall.dev",
        "egressfirewalls.k8s.ovn.org",
        "dnsnameresolvers.network.openshift.io",
        "adminnetworkpolicies.policy.networking.k8s.io",
        "baselineadminnetworkpolicies.policy.networking.k8s.io",
        "clusternetworkpolicies.policy.networking.k8s.io",
    ];
    assert_eq!(kinds(&["crds"]), all);
    assert_eq!(kinds(&["crds", "--only", "nodeaddresses", "ClusterEgressFirewall"]), all[..2]);
    let json = namewall(&["crds", "-o", "json", "--only", "DNSNameResolver"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("it is JSON");
    assert_eq!(json["items"][0]["metadata"]["name"], all[3]);
    assert_eq!(namewall(&["crds", "--only", "NetworkPolicy"]).status.code(), Some(2));
}
