//! Documents written to hurt, found beside the fuzz targets: they are read or
//! refused in bounded time and depth, and nothing in them is lost (S10).

use namewall_cluster::Document;
use std::time::Duration;

fn read(text: &str) -> (usize, Vec<String>) {
    let (documents, findings) = Document::read_all(&"hostile.yaml".into(), text);
    (documents.len(), findings.into_iter().map(|finding| finding.message).collect())
}

#[test]
fn s10_2_a_document_after_dots_is_read_or_reported() {
    let (documents, findings) = read("kind: Pod\n...\nkind: NetworkPolicy\n");
    assert!(documents == 2 || !findings.is_empty(), "the second of two documents was lost without a word");
}

#[test]
fn s10_1_aliases_nest_no_deeper_than_lists() {
    let (open, close) = ("[".repeat(60), "]".repeat(60));
    let text = format!("a: &a {open}x{close}\nb: {open}*a{close}\n");
    let (documents, findings) = read(&text);
    assert_eq!((documents, findings.len()), (0, 1), "120 levels deep, 60 of them by an alias: {findings:?}");
}

/// What this thread has computed so far. Other than the clock it does not count what else the machine does.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    let nanoseconds = told.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first of them is a number"))
}

#[test]
fn s10_1_maps_of_many_keys_are_read_in_step_with_their_size() {
    let keys: String = (0..30_000).map(|number| format!("  key-{number}: value\n")).collect();
    let started = cpu_time();
    let (documents, findings) = read(&format!("data:\n{keys}"));
    assert_eq!((documents, findings.len()), (1, 0), "{findings:?}");
    let took = cpu_time() - started;
    assert!(took < Duration::from_secs(5), "30,000 keys took {took:?}: is every key compared with every other?");
}

/// A folder of this test's own.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-hostile-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Special files and one that is too large, beside a good one, by their names.
fn special_files(folder: &Folder) -> Vec<String> {
    let path = |name: &str| folder.0.join(name);
    std::fs::write(path("a.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n").expect("a file");
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo.yaml"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .expect("a pipe");
    std::os::unix::net::UnixListener::bind(path("socket.yaml")).expect("a socket");
    std::os::unix::fs::symlink("/dev/zero", path("zero.yaml")).expect("a link");
    let large = std::fs::File::create(path("large.yaml")).expect("a file");
    large.set_len(namewall_cluster::MAX_FILE + 1).expect("it takes no room");
    ["fifo.yaml", "large.yaml", "socket.yaml", "zero.yaml"].map(str::to_owned).to_vec()
}

#[test]
fn s10_2_special_files_and_huge_ones_are_errors_and_nobody_waits_for_them() {
    let folder = Folder::new("special");
    let special = special_files(&folder);
    let named = |findings: &[namewall_policy::Finding]| -> Vec<String> {
        let name = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
        let unreadable = findings.iter().filter(|one| one.code == "unreadable-file");
        let mut names: Vec<String> =
            unreadable.filter_map(|one| one.source.as_ref()).map(|at| name(&at.file)).collect();
        names.sort();
        names
    };
    let loaded = namewall_cluster::load(&[&folder.0]).expect("the other file can be read");
    assert_eq!((loaded.documents.len(), named(&loaded.findings)), (1, special.clone()));
    let survey = namewall_cluster::survey(&[&folder.0]);
    assert_eq!((survey.manifests.documents.len(), survey.texts.len()), (1, 1));
    assert_eq!((named(&survey.manifests.findings), survey.unread.len()), (special, 0));
    // Named by itself, a pipe is what a shell makes of `<(…)`. A daemon does not wait for it.
    let named_alone = namewall_cluster::survey(&[folder.0.join("fifo.yaml")]);
    assert_eq!(named(&named_alone.manifests.findings), ["fifo.yaml"]);
}

#[test]
fn a_pipe_that_a_command_names_is_read_as_shells_mean_it() {
    let folder = Folder::new("pipe");
    special_files(&folder);
    let pipe = folder.0.join("fifo.yaml");
    let writer = pipe.clone();
    let writer =
        std::thread::spawn(move || std::fs::write(writer, "{apiVersion: v1, kind: Node, metadata: {name: n}}"));
    let loaded = namewall_cluster::load(&[&pipe]).expect("it is read");
    writer.join().expect("it ends").expect("it is written");
    assert_eq!(loaded.documents.len(), 1);
}

#[test]
fn s10_3_what_cannot_be_read_does_not_keep_the_rest_from_being_read() {
    let folder = Folder::new("unread");
    special_files(&folder);
    std::os::unix::fs::symlink("nowhere", folder.0.join("dangling.yaml")).expect("a link");
    let (missing, empty) = (folder.0.join("missing"), folder.0.join("empty"));
    std::fs::create_dir(&empty).expect("a folder");
    let survey = namewall_cluster::survey(&[&folder.0, &missing, &empty]);
    assert_eq!(survey.manifests.documents.len(), 1);
    let unread: Vec<_> = survey.unread.iter().map(|error| error.path().to_string()).collect();
    let path = |path: std::path::PathBuf| path.display().to_string();
    assert_eq!(unread, [path(folder.0.join("dangling.yaml")), path(missing), path(empty)]);
    assert!(survey.unread.iter().all(|error| error.finding().code == "unreadable-file"));
}

#[test]
fn s10_2_a_file_without_an_object_is_told_of() {
    let folder = Folder::new("blank");
    for (name, text) in [("a.yaml", ""), ("b.yaml", "\n \n"), ("c.yaml", "---\n# nothing\n---\n"), ("d.yaml", "a: b\n")]
    {
        std::fs::write(folder.0.join(name), text).expect("a file");
    }
    let loaded = namewall_cluster::load(&[&folder.0]).expect("they can be read");
    let codes: Vec<_> = loaded.findings.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["empty-file"; 3]);
}

#[test]
fn s10_2_bytes_that_are_no_text_are_told_of() {
    let folder = Folder::new("bytes");
    let object = |text: &[u8]| {
        let head =
            b"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: one\n  namespace: shop\n";
        [&head[..], b"  annotations: {note: '", text, b"'}\nspec: {podSelector: {}}\n"].concat()
    };
    for (name, text) in [("a.yaml", object(b"caf\xe9")), ("b.yaml", object("café".as_bytes()))] {
        std::fs::write(folder.0.join(name), text).expect("a file");
    }
    let loaded = namewall_cluster::load(&[&folder.0]).expect("they can be read");
    assert_eq!(loaded.documents.len(), 2);
    let [finding] = &loaded.findings[..] else { panic!("{:?}", loaded.findings) };
    let source = finding.source.as_ref().expect("its place");
    assert_eq!((finding.code, source.line, source.file.ends_with("a.yaml")), ("not-utf8", 6, true));
}

#[test]
fn a_template_is_called_one_and_a_binary_file_is_not() {
    let folder = Folder::new("template");
    let path = folder.0.join("a.yaml");
    let message = |text: &str| {
        std::fs::write(&path, text).unwrap();
        namewall_cluster::load(&[&path])
            .unwrap()
            .findings
            .iter()
            .map(|finding| finding.message.clone())
            .collect::<Vec<_>>()
            .join("; ")
    };
    let template = message("metadata:\n  {{ include \"labels\" . }}\n");
    assert!(template.contains("looks like a template"), "{template}");
    let binary = message("\u{7f}ELF{{\u{0}\u{1}");
    assert!(!binary.is_empty() && !binary.contains("template"), "{binary}");
}
