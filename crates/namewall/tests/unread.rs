//! What cannot be read is visible in every output and exit code (S10.2).

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-unread-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("it is writable");
        Self(path)
    }

    fn with(self, name: &str, text: &str) -> Self {
        std::fs::write(self.0.join(name), text).expect("it is writable");
        self
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// `@` in the arguments is the folder.
fn namewall(folder: &Folder, line: &str) -> Output {
    let args = line.split_whitespace().map(|arg| arg.replace('@', &folder.path().display().to_string()));
    Command::new(env!("CARGO_BIN_EXE_namewall")).args(args).output().expect("it runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it exits")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

const PODS: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ns, labels: {app: a}}\nstatus: {podIP: 10.0.0.1}\n---\n\
                    apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: ns, labels: {app: b}}\nstatus: {podIP: 10.0.0.2}\n";
/// It allows everything, if one of the two lists is looked at alone.
const TWICE: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: ns}\nspec:\n  podSelector: {matchLabels: {app: b}}\n  ingress: [{}]\n  ingress: []\n";

fn broken(name: &str) -> Folder {
    Folder::new(name).with("pods.yaml", PODS).with("policy.yaml", TWICE)
}

#[test]
fn s10_2_every_command_exits_with_2_and_says_why_unless_it_is_lenient() {
    let folder = broken("exit")
        .with("s.scenario", "topology: {manifests: [pods.yaml, policy.yaml]}\nprobes: [ns/a -> ns/b:80/TCP: deny]\n");
    for (line, otherwise) in [
        ("explain --from ns/a --to ns/b:80 @", 0),
        ("explain --from ns/a --to ns/b:80 --expect deny @", 0),
        ("explain --from ns/a --to ns/b:80 --expect allow @", 1),
        ("matrix @", 0),
        ("matrix -o csv @", 0),
        ("matrix --exposure @", 0),
        ("policies ns/b @", 0),
        ("rules @", 0),
        ("diff @/pods.yaml @", 1),
        ("diff @ @", 0),
        ("test @/s.scenario", 0),
    ] {
        let output = namewall(&folder, line);
        assert_eq!(code(&output), 2, "{line}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("duplicate-key"), "{line}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line}");
        let lenient = namewall(&folder, &format!("{line} --lenient"));
        assert_eq!(code(&lenient), otherwise, "{line}");
        assert_eq!((lenient.stdout, lenient.stderr), (output.stdout, output.stderr), "{line}");
    }
    assert_eq!(code(&namewall(&folder, "check @")), 1);
}

/// `namewall matrix … | head -1`: the reader stops, and the exit code stays what it is.
#[test]
fn s10_2_a_reader_that_stops_does_not_hide_it() {
    let folder = broken("closed-pipe");
    for line in
        ["matrix @", "matrix -o json @", "matrix --exposure @", "policies ns/b @", "explain --from ns/a --to ns/b @"]
    {
        let args = line.split_whitespace().map(|arg| arg.replace('@', &folder.path().display().to_string()));
        let (reader, writer) = std::io::pipe().expect("there are pipes");
        drop(reader);
        let status =
            Command::new(env!("CARGO_BIN_EXE_namewall")).args(args).stdout(writer).stderr(Stdio::null()).status();
        assert_eq!(status.expect("it runs").code(), Some(2), "{line}");
    }
}

#[test]
fn s10_1_a_policy_with_a_key_twice_isolates() {
    let folder = broken("isolates");
    let output = namewall(&folder, "explain --from ns/a --to ns/b:80 --expect deny --lenient @");
    assert_eq!(code(&output), 0, "{}", text(&output.stdout));
}

#[test]
fn s10_2_json_carries_what_could_not_be_read() {
    let folder = broken("json")
        .with("s.scenario", "topology: {manifests: [pods.yaml, policy.yaml]}\nprobes: [ns/a -> ns/b:80/TCP: deny]\n");
    for line in [
        "explain --from ns/a --to ns/b:80 -o json @",
        "policies ns/b -o json @",
        "check -o json @",
        "matrix -o json2 @",
        "matrix --exposure -o json2 @",
        "diff -o json2 @/pods.yaml @",
        "test -o json2 @/s.scenario",
    ] {
        let value = json(&namewall(&folder, line));
        assert_eq!(value["unread"][0]["code"], "duplicate-key", "{line}: {value}");
        assert_eq!(value["unread"][0]["object"], "NetworkPolicy ns/p", "{line}: {value}");
    }
    let good = Folder::new("json-good").with("pods.yaml", PODS);
    assert_eq!(json(&namewall(&good, "explain --from ns/a --to ns/b:80 -o json @"))["unread"], serde_json::json!([]));
    let list = json(&namewall(&good, "matrix -o json @"));
    let wrapped = json(&namewall(&good, "matrix -o json2 @"));
    assert_eq!((&wrapped["pairs"], &wrapped["unread"]), (&list, &serde_json::json!([])));
    assert!(json(&namewall(&folder, "diff -o json2 @/pods.yaml @"))["differences"].is_array());
    let junit = text(&namewall(&folder, "test -o junit @/s.scenario").stdout);
    assert!(junit.contains("errors=\"1\"") && junit.contains("<error message="), "{junit}");
}

#[test]
fn s10_2_empty_standard_input_is_an_error() {
    for input in ["", " \n\n"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_namewall"))
            .args(["check", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        child.stdin.take().expect("it has one").write_all(input.as_bytes()).ok();
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(code(&output), 2);
        assert!(text(&output.stderr).contains("standard input is empty"), "{}", text(&output.stderr));
    }
}

#[test]
fn s10_2_files_of_folders_are_read_or_named() {
    let policy = TWICE.replace("  ingress: []\n", "");
    let folder = Folder::new("files")
        .with("pods.YAML", PODS)
        .with("policy.txt", &policy)
        .with(".hidden.yaml", &policy)
        .with("notes.txt", "Nothing to see.\n")
        .with("README.md", "# Pods\n");
    let output = namewall(&folder, "check -o json @");
    assert_eq!(code(&output), 0, "{}", text(&output.stdout));
    let report = json(&output);
    assert_eq!(report["read"]["workloads"], 2, "{report}");
    let findings = report["findings"].as_array().expect("it is a list").iter();
    let said: Vec<String> = findings
        .filter(|finding| finding["code"].as_str().is_some_and(|code| code.starts_with("skipped")))
        .map(|finding| {
            let file = Path::new(finding["source"]["file"].as_str().unwrap_or_default());
            format!("{} {}", finding["severity"].as_str().unwrap_or_default(), file.file_name().unwrap().display())
        })
        .collect();
    assert_eq!(said, ["warning .hidden.yaml", "hint notes.txt", "warning policy.txt"]);
    let matrix = namewall(&folder, "matrix @");
    assert_eq!(code(&matrix), 0);
    assert!(text(&matrix.stderr).contains("policy.txt"), "{}", text(&matrix.stderr));
}

#[test]
fn s10_2_json_with_comments_and_utf_16_are_not_lost() {
    let object = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}";
    for commented in [format!("// a pod\n{object}\n"), object.replace("{\"name", "{ // its name\n\"name")] {
        let folder = Folder::new("comments").with("a.json", &commented);
        let output = namewall(&folder, "check @");
        assert_eq!(code(&output), 1, "{commented}: {}", text(&output.stdout));
    }
    let folder = Folder::new("utf-16");
    let units = PODS.encode_utf16().flat_map(u16::to_le_bytes);
    std::fs::write(folder.path().join("pods.yaml"), [0xff, 0xfe].into_iter().chain(units).collect::<Vec<u8>>())
        .unwrap();
    assert_eq!(json(&namewall(&folder, "check -o json @"))["read"]["workloads"], 2);
}

#[test]
fn s10_2_a_broken_scenario_beside_good_ones_is_an_error() {
    let good = "topology: {manifests: [pods.yml]}\nprobes: [ns/a -> ns/b:80/TCP: allow]\n";
    let folder = Folder::new("scenarios").with("good.yaml", good).with("pods.yml", PODS);
    let folder = folder.with("kustomization.yaml", "resources: [pods.yml]\n");
    let output = namewall(&folder, "test @");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    for (broken, said) in [
        (good.replace("probes", "probs"), "`probs` is not known here"),
        ("probs: [ns/a -> ns/b:80/TCP: allow]\n".to_owned(), "`probs` is not known here"),
        ("name: [\n".to_owned(), "not valid YAML"),
        (String::new(), "one YAML document"),
    ] {
        let folder = Folder::new("scenarios-broken").with("good.yaml", good).with("pods.yml", PODS);
        let folder = folder.with("other.yaml", &broken);
        let output = namewall(&folder, "test @");
        assert_eq!(code(&output), 2, "{broken}");
        assert!(text(&output.stderr).contains(said), "{broken}: {}", text(&output.stderr));
    }
}

/// In whatever form a scenario is written, and wherever a link leads.
#[test]
fn s10_2_no_scenario_of_a_folder_is_left_out() {
    let fails = "{\"topology\": {\"manifests\": [\"pods.yml\"]}, \"probes\": [{\"ns/a -> ns/b:80/TCP\": \"deny\"}]}\n";
    for name in ["flow.yaml", "flow.json"] {
        let folder = Folder::new(name).with("pods.yml", PODS).with(name, fails);
        assert_eq!(code(&namewall(&folder, "test @")), 1, "{name}");
    }
    let (linked, folder) = (Folder::new("linked").with("pods.yml", PODS).with("s.yaml", fails), Folder::new("links"));
    std::os::unix::fs::symlink(linked.path(), folder.path().join("there")).expect("it is writable");
    std::os::unix::fs::symlink(folder.path(), linked.path().join("back")).expect("it is writable");
    assert_eq!(code(&namewall(&folder, "test @")), 1);
    // A file that belongs to somebody else.
    let folder = Folder::new("foreign").with("pods.yml", PODS).with("package.json", "{\"name\": \"x\"}\n");
    let output = namewall(&folder, "test @");
    assert!(text(&output.stderr).contains("there is no scenario"), "{}", text(&output.stderr));
}

/// A hidden folder may hold policies that are meant.
#[test]
fn s10_2_objects_in_hidden_folders_are_named() {
    let folder = Folder::new("hidden-folder").with("pods.yaml", PODS);
    std::fs::create_dir_all(folder.path().join(".more/policies")).expect("it is writable");
    let folder = folder.with(".more/policies/a.yaml", TWICE);
    for line in ["matrix @", "check @"] {
        let output = namewall(&folder, line);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains("skipped-objects") && said.contains(".more/policies/a.yaml"), "{line}: {said}");
    }
    // What a mounted ConfigMap looks like: every file is read, through a link.
    let folder = Folder::new("mounted");
    std::fs::create_dir_all(folder.path().join("..2026")).expect("it is writable");
    let folder = folder.with("..2026/pods.yaml", PODS);
    std::os::unix::fs::symlink("..2026", folder.path().join("..data")).expect("it is writable");
    std::os::unix::fs::symlink("..data/pods.yaml", folder.path().join("pods.yaml")).expect("it is writable");
    let output = namewall(&folder, "check @");
    assert!(!text(&output.stdout).contains("skipped-objects"), "{}", text(&output.stdout));
}

#[test]
fn s10_2_paths_in_lists_of_a_step_are_honoured() {
    let policy = TWICE.replace("  ingress: [{}]\n", "");
    let scenario = |apply: &str| {
        format!("topology: {{manifests: [pods.yml]}}\nsteps:\n- apply: {apply}\nprobes: [ns/a -> ns/b:80/TCP: deny]\n")
    };
    for (name, apply, expected) in [
        ("list", "[policy.yml]", 0),
        ("path", "policy.yml", 0),
        ("missing", "[missing.yml]", 2),
        ("nested", "[[policy.yml]]", 2),
    ] {
        let folder =
            Folder::new(name).with("s.yaml", &scenario(apply)).with("pods.yml", PODS).with("policy.yml", &policy);
        let output = namewall(&folder, "test @");
        assert_eq!(code(&output), expected, "{apply}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

/// A pipe that nobody writes to would be waited for, for ever.
#[test]
fn s10_1_a_pipe_that_a_scenario_or_a_folder_names_is_not_waited_for() {
    let folder = Folder::new("pipe")
        .with("scenario.yaml", "topology: {manifests: [pipe.yaml]}\nprobes: [\"192.0.2.1 -> 192.0.2.2:80: allow\"]\n")
        .with(
            "apply.yaml",
            "topology: {}\nsteps: [{apply: pipe.yaml}, {probe: [\"192.0.2.1 -> 192.0.2.2:80: allow\"]}]\n",
        );
    let pipe = folder.path().join("pipe.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    for name in ["scenario.yaml", "apply.yaml", ""] {
        let test = [env!("CARGO_BIN_EXE_namewall"), "test"];
        let output = Command::new("timeout").arg("60").args(test).arg(folder.path().join(name)).output();
        let output = output.expect("timeout runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.code().is_some_and(|code| code != 124 && code != 0), "`{name}`: {said}");
        assert!(said.contains("regular file"), "`{name}`: {said}");
    }
}
