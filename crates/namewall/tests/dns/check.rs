//! `--check`: what is wrong with a Corefile, and what is not.

use crate::process::Folder;
use expect_test::expect;

#[test]
fn a_good_one_can_be_served() {
    Folder::new(".:5300 {\n bind 127.0.0.1\n firewall query {\n  default allow\n }\n forward . 192.0.2.53\n}\n").check(
        &["--check"],
        0,
        expect![[r#"
            note: Corefile can be served
        "#]],
    );
}

#[test]
fn what_is_probably_not_meant_is_told_and_served() {
    Folder::new(".:5300 {\n bind 127.0.0.1\n firewall query {\n  allow client_ip == '192.0.2.1'\n }\n}\n").check(
        &["--check"],
        0,
        expect![[r#"
            Corefile:3:2: warning: it is not said what counts at the end of this list
              3 |  firewall query {
                |  ^^^^^^^^ in a list without a zone it is `block`: write `default block`
            note: Corefile can be served
        "#]],
    );
}

#[test]
fn all_that_is_wrong_is_told_with_its_place() {
    Folder::new(".:5300 {\n firewal query {\n }\n firewall query {\n  allow name ==\n  default maybe\n }\n}\n").check(
        &["--check"],
        1,
        expect![[r#"
            Corefile cannot be served
            Corefile:2:2: error: unknown directive `firewal`
              2 |  firewal query {
                |  ^^^^^^^ did you mean `firewall`?
            Corefile:4:2: warning: it is not said what counts at the end of this list
              4 |  firewall query {
                |  ^^^^^^^^ in a list without a zone it is `block`: write `default block`
            Corefile:5:16: error: a value is missing at the end
              5 |   allow name ==
                |                ^ see docs/expressions.md
            Corefile:6:11: error: `maybe` is not accepted here
              6 |   default maybe
                |           ^^^^^ write `allow`, `block`, `refuse`, `drop`, `permit` or `deny`
        "#]],
    );
}

#[test]
fn what_cannot_be_served_is_wrong_too() {
    let text =
        ".:5300 {\n bind 127.0.0.1\n file /no/such/zone\n forward . tls://192.0.2.53 {\n tls /no/such/ca\n }\n}\n";
    Folder::new(text).check(
        &["--check"],
        1,
        expect![[r#"
            the Corefile cannot be served
            Corefile:3:2: error: file: /no/such/zone: No such file or directory (os error 2)
            Corefile:4:2: error: cannot read /no/such/ca: No such file or directory (os error 2)
        "#]],
    );
}

#[test]
fn twins_by_this_machines_addresses_are_wrong() {
    Folder::new(".:5300 {\n bind lo\n}\n.:5300 {\n bind 127.0.0.1\n}\n").check(
        &["--check"],
        1,
        expect![[r#"
        the Corefile cannot be served
        Corefile:4:1: error: . is served at 127.0.0.1:5300 by Corefile:1:1 already
    "#]],
    );
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let folder = Folder::new("");
    folder.check(
        &["--check", "--conf", "Nofile"],
        1,
        expect![[r#"
        cannot read Nofile: No such file or directory (os error 2)
    "#]],
    );
    folder.check(
        &["--conf", "Nofile"],
        2,
        expect![[r#"
        error: cannot read Nofile: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn a_bad_one_is_not_served() {
    Folder::new(".:5300 {\n firewall query {\n  allow name ==\n }\n}\n").check(
        &[],
        2,
        expect![[r#"
        error: Corefile cannot be served
        Corefile:2:2: warning: it is not said what counts at the end of this list
          2 |  firewall query {
            |  ^^^^^^^^ in a list without a zone it is `block`: write `default block`
        Corefile:3:16: error: a value is missing at the end
          3 |   allow name ==
            |                ^ see docs/expressions.md
    "#]],
    );
}

/// The start would fail with these. Nobody is asked: the files are read.
#[test]
fn an_api_server_that_cannot_be_asked_is_wrong() {
    let wrong = |options: &str| {
        let text = format!(".:5300 {{\n bind 127.0.0.1\n kubernetes cluster.local {{\n  {options}\n }}\n}}\n");
        let folder = Folder::new(&text);
        let (code, printed) = folder.run(&["--check"]);
        assert_eq!(code, Some(1), "{options}: {printed}");
        assert!(printed.contains("Corefile:3:2: error: kubernetes: "), "{options}: {printed}");
        printed
    };
    assert!(wrong("kubeconfig /no/such/file").contains("/no/such/file"));
    assert!(wrong("endpoint https://127.0.0.1:1\n  tls /no/cert /no/key /no/ca").contains("/no/"));
    let file = std::env::temp_dir().join(format!("namewall-check-{}", std::process::id()));
    std::fs::write(&file, KUBECONFIG).unwrap();
    let unknown = wrong(&format!("kubeconfig {} other", file.display()));
    let (code, printed) = Folder::new(&format!(
        ".:5300 {{\n bind 127.0.0.1\n kubernetes cluster.local {{\n  kubeconfig {}\n }}\n}}\n",
        file.display()
    ))
    .run(&["--check"]);
    let _ = std::fs::remove_file(&file);
    assert!(unknown.contains("other"), "{unknown}");
    assert_eq!(code, Some(0), "{printed}");
}

const KUBECONFIG: &str = "apiVersion: v1
kind: Config
current-context: one
contexts:
- name: one
  context:
    cluster: one
    user: one
clusters:
- name: one
  cluster:
    server: http://127.0.0.1:1
users:
- name: one
  user: {}
";

/// A rule about who clients are would never match.
#[test]
fn rules_about_clients_need_who_knows_them() {
    let folder = Folder::new(
        ".:5300 {
 bind 127.0.0.1
 firewall query {
  refuse [kubernetes/client-namespace] == 'evil'
  default allow
 }
 forward . 192.0.2.53
}
",
    );
    let (code, printed) = folder.run(&[]);
    assert_eq!(code, Some(2), "{printed}");
    let why = "Corefile:4:3: error: nothing says who clients are, and `kubernetes/client-namespace` needs it: pass \
               --kubeconfig or --manifests";
    assert!(printed.contains(why), "{printed}");
    // A file is checked where its cluster is not.
    folder.check(&["--check"], 0, expect!["note: Corefile can be served\n"]);
    let (code, printed) = folder.run(&["--explain", "A a.example from 10.0.0.1"]);
    assert_eq!(code, Some(0), "{printed}");
    let note = "Corefile:4:3: no pod is known here for `kubernetes/client-namespace`: pass --manifests";
    assert!(printed.contains(note), "{printed}");
}
