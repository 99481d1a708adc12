//! The syntax, as CoreDNS' own tests of it have it.

use super::{Folder, check, environment, read_alone, told};
use expect_test::{Expect, expect};
use namewall_corefile::read;

/// Keys and directives of every server block, as far as flags show them.
fn blocks(text: &str) -> String {
    in_folder(text, &[])
}

fn in_folder(text: &str, files: &[(&'static str, &'static str)]) -> String {
    let read = read("/etc/Corefile", text, &Folder(files.iter().copied().collect()), &environment);
    let Ok(corefile) = &read else { return told(&read) };
    let mut out = String::new();
    for server in &corefile.servers {
        let keys: Vec<String> = server.keys.iter().map(|key| format!("{}:{}", key.zone, key.port)).collect();
        out += &format!("{} {{", keys.join(" "));
        let flags = [
            (server.errors.is_some(), "errors"),
            (server.detects_loops, "loop"),
            (server.whoami, "whoami"),
            (server.debug, "debug"),
        ];
        for (_, name) in flags.iter().filter(|(is, _)| *is) {
            out += &format!(" {name}");
        }
        out += " }\n";
    }
    out + &told(&read)
}

#[test]
fn keys() {
    for (text, expected) in [
        ("example.org", "example.org.:53 { }\n"),
        (".\nerrors\nloop", ".:53 { errors loop }\n"),
        (".:1053 {\n errors\n}\n", ".:1053 { errors }\n"),
        (".\n{\n errors\n}\n", ".:53 { errors }\n"),
        (":1053", ".:1053 { }\n"),
        ("Example.ORG. dns://example.net:54 {\n}", "example.org.:53 example.net.:54 { }\n"),
        ("a.example, b.example {\n}", "a.example.:53 b.example.:53 { }\n"),
        ("a.example,\n b.example,\n c.example", "a.example.:53 b.example.:53 c.example.:53 { }\n"),
        ("10.0.0.0/24 2001:db8::/32:54 {\n}", "0.0.10.in-addr.arpa.:53 8.b.d.0.1.0.0.2.ip6.arpa.:54 { }\n"),
        (".:{$PORT} {\n}", ".:1053 { }\n"),
        (".:{%PORT%} {\n}", ".:1053 { }\n"),
        ("a.example {\n}\nb.example {\n loop\n}", "a.example.:53 { }\nb.example.:53 { loop }\n"),
        (". { errors }", ".:53 { errors }\n"),
    ] {
        assert_eq!(blocks(text), expected, "{text:?}");
    }
}

#[test]
fn keys_that_are_refused() {
    check(
        "quic://example.org grpc://. ftp://a {\n}\n*.example.org\n",
        expect![[r#"
            Corefile:1:1: error: `quic://` is not served here
              1 | quic://example.org grpc://. ftp://a {
                | ^^^^^^^^^^^^^^^^^^ write `tls://` or `https://`, or leave the scheme away for plain DNS
            Corefile:1:20: error: `grpc://` is not served here
              1 | quic://example.org grpc://. ftp://a {
                |                    ^^^^^^^^ write `tls://` or `https://`, or leave the scheme away for plain DNS
            Corefile:1:29: error: `ftp://` is no scheme of DNS
              1 | quic://example.org grpc://. ftp://a {
                |                             ^^^^^^^ write `dns://`, `tls://` or `https://`
            Corefile:3:1: error: a zone has no wildcard
              3 | *.example.org
                | ^^^^^^^^^^^^^ write `example.org`: a zone is a name and all under it
        "#]],
    );
    check(
        "a.example, {\n}\n{\n errors\n}\n",
        expect![[r#"
        Corefile:1:1: error: another zone must follow the comma
          1 | a.example, {
            | ^^^^^^^^^^ remove the comma
        Corefile:3:1: error: a server block needs a zone before its `{`
          3 | {
            | ^ write `. {` for every name
    "#]],
    );
    check(
        ". {\n}\nexample.org:0 10.0.0.1 10.0.0.0/33 :x a..b {\n}\n",
        expect![[r#"
            Corefile:3:1: error: `0` is not a port
              3 | example.org:0 10.0.0.1 10.0.0.0/33 :x a..b {
                | ^^^^^^^^^^^^^ ports are 1 to 65535, like `example.org:1053`
            Corefile:3:15: error: `10.0.0.1` is an address; write it as a network, like 10.0.0.1/32
              3 | example.org:0 10.0.0.1 10.0.0.0/33 :x a..b {
                |               ^^^^^^^^ write a name, like `example.org`, or a network, like `10.0.0.0/24`
            Corefile:3:24: error: `10.0.0.0/33` has a prefix longer than its address (32 bits)
              3 | example.org:0 10.0.0.1 10.0.0.0/33 :x a..b {
                |                        ^^^^^^^^^^^ write a name, like `example.org`, or a network, like `10.0.0.0/24`
            Corefile:3:36: error: `x` is not a port
              3 | example.org:0 10.0.0.1 10.0.0.0/33 :x a..b {
                |                                    ^^ ports are 1 to 65535, like `example.org:1053`
            Corefile:3:39: error: `a..b` has an empty label; labels are separated by single dots
              3 | example.org:0 10.0.0.1 10.0.0.0/33 :x a..b {
                |                                       ^^^^ write a name, like `example.org`, or a network, like `10.0.0.0/24`
        "#]],
    );
    check(
        ". {\n}\na.example .:53 {\n}\n",
        expect![[r#"
            Corefile:3:11: error: `.` at port 53 is served already
              3 | a.example .:53 {
                |           ^^^^ by Corefile:1:1: remove one of them
        "#]],
    );
    check(". {\n bind 10.0.0.1\n}\n. {\n bind 10.0.0.2\n}\n", expect![[""]]);
    check(
        ".:53\nerrors\nexample.org {\n}\n",
        expect![[r#"
        Corefile:3:1: error: unknown directive `example.org`
          3 | example.org {
            | ^^^^^^^^^^^ a server block without braces goes to the end of the file: write braces
    "#]],
    );
}

#[test]
fn braces() {
    check(
        ". {\n log {\n  class all\n",
        expect![[r#"
            Corefile:1:3: error: this block is never closed
              1 | . {
                |   ^ add a `}` where it ends
            Corefile:2:6: error: this block is never closed
              2 |  log {
                |      ^ add a `}` where it ends
        "#]],
    );
    check(
        ". {\n errors\n}\n}\n",
        expect![[r#"
        Corefile:4:1: error: this `}` closes nothing
          4 | }
            | ^ remove it
    "#]],
    );
    check(
        ". {\n errors\n {\n  stacktrace\n }\n}\n",
        expect![[r#"
        Corefile:3:2: error: this `{` belongs to nothing
          3 |  {
            |  ^ a block opens on the line of the directive it belongs to
    "#]],
    );
    check(
        ". {\n log {\n class all\n } loop\n}\n",
        expect![[r#"
        Corefile:4:4: error: nothing may follow a `}` on its line
          4 |  } loop
            |    ^^^^ begin a new line
    "#]],
    );
    check(". {\n log { class denial error }\n errors { stacktrace } }\n", expect![[""]]);
    check(
        ". {\n log . \"{type}\n}\n",
        expect![[r#"
            Corefile:1:3: error: this block is never closed
              1 | . {
                |   ^ add a `}` where it ends
            Corefile:2:8: error: this quote is never closed
              2 |  log . "{type}
                |        ^ add a `"` where it ends
        "#]],
    );
}

#[test]
fn snippets_and_files() {
    let common = "(common) {\n errors\n loop\n}\n";
    assert_eq!(blocks(&format!("{common}. {{\n import common\n whoami\n}}")), ".:53 { errors loop whoami }\n");
    // A snippet of one line, twice on end, is two lines.
    let one = "(one) { bind 10.0.0.1 }\n. {\n import one\n import one\n}";
    assert_eq!(read_alone(one).unwrap().servers[0].bind.len(), 2);
    assert_eq!(
        in_folder(
            "import zones/*.conf\n. {\n import common\n}",
            &[
                ("/etc/zones/b.conf", "b.example {\n import ../common\n}"),
                ("/etc/zones/a.conf", "a.example {\n debug\n}"),
                ("/etc/zones/c.txt", "never {"),
                ("/etc/common", "errors\nloop"),
            ]
        ),
        "a.example.:53 { debug }\nb.example.:53 { errors loop }\n.:53 { errors loop }\n"
    );
    // Within a directive's block, too.
    let text = ". {\n log {\n  import classes\n }\n}";
    assert_eq!(in_folder(text, &[("/etc/classes", "class denial\nclass error")]), ".:53 { }\n");
    // An argument may be called `import`.
    assert_eq!(blocks(". {\n expression import\n firewall query {\n expression import deny true\n }\n}"), ".:53 { }\n");
}

fn check_files(text: &str, files: &[(&'static str, &'static str)], expected: Expect) {
    expected.assert_eq(&in_folder(text, files));
}

#[test]
fn imports_that_are_refused() {
    check_files(
        "(a) {\n import a\n}\n. {\n import a\n}\n",
        &[],
        expect![[r#"
            /etc/Corefile:2:2: error: `(a)` imports itself: (a) imports (a)
              2 |  import a
                |  ^^^^^^ remove one of these imports
        "#]],
    );
    check_files(
        "(a) {\n import b\n}\n(b) {\n import a\n}\n. {\n import a\n}\n",
        &[],
        expect![[r#"
            /etc/Corefile:5:2: error: `(a)` imports itself: (a) imports (b) imports (a)
              5 |  import a
                |  ^^^^^^ remove one of these imports
        "#]],
    );
    check_files(
        "import a\n",
        &[("/etc/a", "import b\n"), ("/etc/b", "import ./x/../a\n")],
        expect![[r#"
            /etc/b:1:1: error: `/etc/a` imports itself: /etc/a imports /etc/b imports /etc/a
              1 | import ./x/../a
                | ^^^^^^ remove one of these imports
        "#]],
    );
    check_files(
        "import Corefile\n",
        &[("/etc/Corefile", "import Corefile\n")],
        expect![[r#"
            /etc/Corefile:1:1: error: `/etc/Corefile` imports itself: /etc/Corefile imports /etc/Corefile
              1 | import Corefile
                | ^^^^^^ remove one of these imports
        "#]],
    );
    check_files(
        "(common) {\n}\n. {\n import comon\n}\n",
        &[],
        expect![[r#"
        /etc/Corefile:4:9: error: `/etc/comon` cannot be imported: entity not found
          4 |  import comon
            |         ^^^^^ did you mean the snippet `common`?
    "#]],
    );
    check_files(
        "import\nimport a b\nimport a*b*c\nimport x/*\nimport \"\"\nimport {$}\n",
        &[],
        expect![[r#"
        /etc/Corefile:1:1: error: `import` names nothing
          1 | import
            | ^^^^^^ write `import NAME`, with the name of a snippet, a file or a pattern of files
        /etc/Corefile:2:10: error: `import` takes one argument
          2 | import a b
            |          ^ arguments for snippets are Caddy 2's, CoreDNS has none: write the snippet once for each
        /etc/Corefile:3:8: error: `a*b*c` is not a pattern of files
          3 | import a*b*c
            |        ^^^^^ one `*` and one `?` are accepted, in the last part of the path
        /etc/Corefile:4:8: warning: no file is like `x/*`
          4 | import x/*
            |        ^^^
        /etc/Corefile:5:8: error: `import` names nothing
          5 | import ""
            |        ^^ write `import NAME`, with the name of a snippet, a file or a pattern of files
        /etc/Corefile:6:8: error: `/etc/{$}` cannot be imported: entity not found
          6 | import {$}
            |        ^^^ a snippet stands before what imports it, a path is seen from the file it is in
    "#]],
    );
    check_files(
        "(a) {\n forward . {args[0]}\n}\n(a) {\n}\n(b)\nerrors\n",
        &[],
        expect![[r#"
        /etc/Corefile:2:12: error: snippets have no arguments
          2 |  forward . {args[0]}
            |            ^^^^^^^^^ they are Caddy 2's, CoreDNS has none: write the snippet once for each
        /etc/Corefile:4:1: error: the snippet `a` is there already
          4 | (a) {
            | ^^^ call one of them otherwise
        /etc/Corefile:6:1: error: the snippet `b` has no block
          6 | (b)
            | ^^^ write `(b) {`, its lines and `}`
    "#]],
    );
    check_files(
        "import a\n",
        &[("/etc/a", ". {\n erors\n}\n")],
        expect![[r#"
        /etc/a:2:2: error: unknown directive `erors`
          2 |  erors
            |  ^^^^^ did you mean `errors`?
    "#]],
    );
}

#[test]
fn imports_have_bounds() {
    let mut text = String::from("(s0) {\n errors\n}\n");
    for level in 1..40 {
        text += &format!("(s{level}) {{\n import s{0}\n import s{0}\n}}\n", level - 1);
    }
    text += ". {\n import s39\n}\n";
    let told = told(&read_alone(&text));
    assert!(told.contains("imports within each other"), "{told}");
    let deep = format!(". {{\n{}", "log {\n".repeat(10_000));
    assert!(read_alone(&deep).is_err());
    let wide = "a ".repeat(300_000);
    assert!(read_alone(&wide).is_err());
}

#[test]
fn variables() {
    let text = ". {\n forward . {$UPSTREAM}:{$PORT} {\n  policy {$ORDER}random\n }\n}\n";
    let read = read_alone(text);
    expect![[r#"
        Corefile:3:10: warning: the variable `ORDER` is not set
          3 |   policy {$ORDER}random
            |          ^^^^^^^^^^^^^^ it is read as nothing
    "#]]
    .assert_eq(&told(&read));
    assert_eq!(format!("{:?}", read.unwrap().servers[0].forwards[0].to), "[Plain(192.0.2.53:1053)]");
}
