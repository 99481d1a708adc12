//! What a Corefile is read from besides itself: a change of any of it is seen, and a bad one changes nothing.

use crate::ports::free_port;
use crate::process::{Asker, Folder, Serving};
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::time::Duration;

const AGAIN: &str = "Corefile was read again";
const AS_BEFORE: &str = "it is served as it was before";

/// A process whose files change.
struct Changing {
    serving: Serving,
    port: u16,
}

impl Changing {
    /// With a server block of these lines, and these files beside it.
    fn start(lines: &str, files: &[(&str, &str)]) -> Self {
        let port = free_port();
        let folder = Folder::new(&format!(".:{port} {{\n bind 127.0.0.1\n{lines}\n}}\n"));
        files.iter().for_each(|(name, text)| folder.write(name, text));
        Self { serving: Serving::start_in(folder), port }
    }

    /// What becomes of a question now.
    #[track_caller]
    fn answers(&self, expected: &str) {
        let asker = Asker::of((Ipv4Addr::LOCALHOST, self.port).into());
        assert_eq!(asker.outcome(1, "www"), expected, "{}", self.serving.told());
    }

    fn count(&self, text: &str) -> usize {
        self.serving.told().matches(text).count()
    }

    /// Changes a file, and waits until that has been seen.
    fn write(&self, name: &str, text: &str, seen: &str) {
        let before = self.count(seen);
        self.serving.folder.write(name, text);
        self.serving.wait_for(seen, before + 1);
    }
}

fn hosts(last: u8) -> String {
    format!("hosts /no/such/file {{\n 192.0.2.{last} www.example\n}}\n")
}

#[test]
fn what_it_imports() {
    let changing = Changing::start("reload 2s 0s\nimport names", &[("names", &hosts(1))]);
    changing.answers("192.0.2.1");
    changing.write("names", &hosts(2), AGAIN);
    changing.answers("192.0.2.2");
    changing.write("names", "hosts {\n ttl soon\n}", AS_BEFORE);
    assert!(changing.serving.told().contains("names:2:6: error: `soon`"), "{}", changing.serving.told());
    changing.answers("192.0.2.2");
    changing.write("names", &hosts(3), AGAIN);
    changing.answers("192.0.2.3");
}

#[test]
fn files_that_come_and_go_where_a_pattern_is_imported() {
    let changing = Changing::start("reload 2s 0s\nimport *.conf", &[("a.conf", &hosts(1))]);
    // What is not like the pattern is nothing to it.
    changing.serving.folder.write("notes", "to do");
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(changing.count(AGAIN), 0);
    changing.write("b.conf", "firewall query {\n refuse true\n}", AGAIN);
    changing.answers("REFUSED");
    std::fs::remove_file(changing.serving.folder.path("b.conf")).unwrap();
    changing.serving.wait_for(AGAIN, 2);
    changing.answers("192.0.2.1");
}

#[test]
fn what_is_imported_and_not_there_may_come() {
    let changing = Changing::start(&format!("reload 2s 0s\n{}", hosts(1)), &[]);
    let corefile = format!(".:{} {{\n bind 127.0.0.1\n reload 2s 0s\n import names\n}}\n", changing.port);
    changing.write("Corefile", &corefile, AS_BEFORE);
    changing.answers("192.0.2.1");
    changing.write("names", &hosts(2), AGAIN);
    changing.answers("192.0.2.2");
}

const REGO: &str = "package dns\n\ndefault action := \"allow\"\n\naction := \"refuse\" if input.name in data.refused\n";

#[test]
fn rego_policies_and_their_data() {
    let lines = format!(
        "reload 2s 0s\nopa own {{\n policy own.rego\n data own.json\n}}\nfirewall query {{\n opa own\n}}\n{}",
        hosts(1)
    );
    let changing = Changing::start(&lines, &[("own.rego", REGO), ("own.json", r#"{"refused": []}"#)]);
    changing.answers("192.0.2.1");
    changing.write("own.json", r#"{"refused": ["www.example."]}"#, AGAIN);
    changing.answers("REFUSED");
    changing.write("own.rego", "package dns\n\naction := \n", AS_BEFORE);
    assert!(changing.serving.told().contains("own.rego"), "{}", changing.serving.told());
    changing.answers("REFUSED");
    changing.write("own.rego", "package dns\n\naction := \"block\"\n", AGAIN);
    changing.answers("NXDOMAIN");
}

fn themis(of_known: &str, otherwise: &str) -> String {
    format!(
        "attributes: {{domain_name: domain}}
policies:
  alg:
    id: Mapper
    map: {{selector: {{uri: \"local:names/action\", path: [{{attr: domain_name}}], type: string}}}}
    error: unknown
  rules:
    - {{id: known, effect: {of_known}}}
    - {{id: unknown, effect: {otherwise}}}
"
    )
}

fn content(name: &str) -> String {
    format!(
        r#"{{"id": "names", "items": {{"action": {{"keys": ["domain"], "type": "string", "data": {{"{name}": "known"}}}}}}}}"#
    )
}

#[test]
fn themis_policies_and_their_content() {
    let lines = format!(
        "reload 2s 0s\nthemis own {{\n pdp own.yaml own.json\n}}\nfirewall query {{\n themis own\n}}\n{}",
        hosts(1)
    );
    let files = [("own.yaml", &*themis("Permit", "Deny")), ("own.json", &*content("www.example"))];
    let changing = Changing::start(&lines, &files);
    changing.answers("192.0.2.1");
    changing.write("own.json", &content("other.example"), AGAIN);
    changing.answers("NXDOMAIN");
    changing.write("own.json", "{", AS_BEFORE);
    assert!(changing.serving.told().contains("own.json"), "{}", changing.serving.told());
    changing.answers("NXDOMAIN");
    // The policy alone does not help as long as the content is wrong.
    changing.write("own.yaml", &themis("Deny", "Permit"), AS_BEFORE);
    changing.answers("NXDOMAIN");
    changing.write("own.json", &content("other.example"), AGAIN);
    changing.answers("192.0.2.1");
}

#[test]
fn hosts_have_a_time_of_their_own() {
    let changing = Changing::start("hosts names {\n reload 200ms\n}", &[("names", "192.0.2.1 www.example\n")]);
    changing.answers("192.0.2.1");
    // Long before it would be time for the Corefile.
    changing.write("names", "192.0.2.2 www.example\n", AGAIN);
    changing.answers("192.0.2.2");
}

#[test]
fn nothing_is_looked_at_where_reload_is_off_but_a_signal_has_all_read() {
    let names = |last: u8| format!("192.0.2.{last} www.example\n");
    let changing = Changing::start("reload off\nhosts names {\n reload 0s\n}", &[("names", &names(1))]);
    changing.serving.folder.write("names", names(2));
    std::thread::sleep(Duration::from_secs(1));
    changing.answers("192.0.2.1");
    changing.serving.signal(Signal::SIGHUP);
    changing.serving.wait_for(AGAIN, 1);
    changing.answers("192.0.2.2");
}
