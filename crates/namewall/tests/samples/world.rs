//! A machine with the addresses that samples name, an upstream, engines, and clients that ask with dig.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Where questions are sent, and who answers what passes.
const SERVER: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const UPSTREAM: &str = "192.0.2.53:5300";
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Every address there is: the machine's, its engines' and its clients'.
const ADDRESSES: [&str; 13] = [
    "192.0.2.1/32",
    "192.0.2.53/32",
    "10.0.0.7/32",
    "10.0.0.8/32",
    "10.0.0.9/32",
    "172.23.1.2/32",
    "172.24.1.2/32",
    "10.120.0.1/32",
    "10.120.1.11/32",
    "10.120.1.12/32",
    "10.9.9.9/32",
    "2001:db8::1/128",
    "2001:db8:1::2/128",
];

pub(crate) fn set_up() {
    let ip = |words: &str| {
        let status = Command::new("ip").args(words.split_whitespace()).status().expect("ip is there");
        assert!(status.success(), "ip {words}");
    };
    ip("link set lo up");
    for address in ADDRESSES {
        // Nobody else could have it, and it is wanted at once.
        let nodad = if address.contains(':') { "nodad" } else { "" };
        ip(&format!("address add {address} dev lo {nodad}"));
    }
    let socket = UdpSocket::bind(UPSTREAM).unwrap();
    spawn(move || {
        let mut query = [0; 1_232];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            let _ = socket.send_to(&answer(&query[..length]), client);
        }
    });
}

/// What the upstream says, by the first label: `inside` is within, `both` too, `google` is Google's.
fn answer(query: &[u8]) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    // Questions come in any letter case.
    let (label, kind) = (query[13..13 + usize::from(query[12])].to_ascii_lowercase(), query[end - 3]);
    let records: Vec<&[u8]> = match (kind, &label[..]) {
        (1, b"inside") => vec![&[10, 1, 2, 3]],
        (1, b"both") => vec![&[10, 1, 2, 3], &[198, 51, 100, 80]],
        (1, b"google") => vec![&[172, 217, 1, 1]],
        (1, _) => vec![&[198, 51, 100, 80]],
        (16, _) => vec![b"\x04text"],
        _ => Vec::new(),
    };
    let mut answer = query[..end].to_vec();
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    for data in records {
        answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        answer.extend(data);
    }
    answer
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder of one's own, which is gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("namewall-samples-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(path.join(name), text).unwrap());
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The policy of an engine.
struct PolicyFile<'a> {
    name: &'a str,
    text: &'a str,
}

/// A server of a policy engine.
pub(crate) struct Engine {
    _process: Process,
    _folder: Folder,
}

impl Engine {
    fn start(script: &str, at: &str, policy: PolicyFile<'_>, words: &[&str]) -> Self {
        let folder = Folder::new(&[(policy.name, policy.text)]);
        let process = Command::new(namewall_testbed::peer(script))
            .args(words)
            .arg(folder.0.join(policy.name))
            .stdout(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut process = Process(process);
        let began = Instant::now();
        while TcpStream::connect(at).is_err() {
            assert!(process.0.try_wait().unwrap().is_none(), "{script} has ended; it says above why");
            assert!(began.elapsed() < TEST_TIMEOUT, "{script} does not listen at {at}");
            sleep(Duration::from_millis(20));
        }
        Self { _process: process, _folder: folder }
    }
}

/// OPA's own server.
pub(crate) fn opa(at: &str, policy: &str) -> Engine {
    let words = ["run", "--server", "--skip-version-check", "--log-level", "error", "--addr", at];
    Engine::start("opa", at, PolicyFile { name: "policy.rego", text: policy }, &words)
}

/// Themis' own server.
pub(crate) fn pdp(at: &str, policy: &str) -> Engine {
    let host = at.split(':').next().unwrap();
    let (control, storage) = (format!("{host}:5554"), format!("{host}:5553"));
    let words = ["-v", "0", "-pfmt", "yaml", "-l", at, "-c", &control, "-storage", &storage, "-p"];
    Engine::start("pdpserver", at, PolicyFile { name: "policy.yaml", text: policy }, &words)
}

/// An API server without objects, at port 80 of an address.
pub(crate) fn empty_cluster(address: &str) {
    let listener = TcpListener::bind((address, 80)).expect("the port is free");
    spawn(move || listener.incoming().map_while(Result::ok).for_each(|stream| _ = spawn(move || list_nothing(stream))));
}

/// Answers each list with none, and says nothing to a watch.
fn list_nothing(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(request) = lines.next().transpose()? {
        while lines.next().transpose()?.is_some_and(|header| !header.is_empty()) {}
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        if request.contains("watch=true") {
            write!(stream, "{head}Transfer-Encoding: chunked\r\n\r\n")?;
        } else {
            let list = r#"{"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}"#;
            write!(stream, "{head}Content-Length: {}\r\n\r\n{list}", list.len())?;
        }
    }
    Ok(())
}

/// A Corefile that is served.
pub(crate) struct World {
    _process: Process,
    _folder: Folder,
    told: Arc<Mutex<String>>,
}

impl World {
    /// As printed, and whom to ask for what passes; with the files it names.
    pub(crate) fn serve(corefile: &str, files: &[(&str, &str)]) -> Self {
        let printed = corefile.trim_end().strip_suffix('}').expect("a block ends with a brace");
        let corefile = format!("{printed}   forward . {UPSTREAM}\n}}\n");
        let folder = Folder::new(&[files, &[("Corefile", &corefile)]].concat());
        let mut process = Command::new(env!("CARGO_BIN_EXE_namewall"))
            .args(["dns"])
            .current_dir(&folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let told: Arc<Mutex<String>> = Arc::default();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(process.stdout.take().unwrap()), Box::new(process.stderr.take().unwrap())];
        for stream in streams {
            let told = told.clone();
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            spawn(move || lines.for_each(|line| told.lock().unwrap().push_str(&format!("{line}\n"))));
        }
        let world = Self { _process: Process(process), _folder: folder, told };
        let began = Instant::now();
        while !world.told().contains("serving DNS") {
            assert!(began.elapsed() < TEST_TIMEOUT, "it does not serve:\n{corefile}{}", world.told());
            sleep(Duration::from_millis(5));
        }
        world
    }

    fn told(&self) -> String {
        self.told.lock().unwrap().clone()
    }

    /// Asks questions like `A www.example.com from 10.120.1.11 65517=text 65518=x0aff`, each with what must be in
    /// the answer: its code if that is an error, else data; `nothing` is that none comes.
    #[track_caller]
    pub(crate) fn check(&self, questions: &[(&str, &str)]) {
        for (question, expected) in questions {
            let told = self.dig(question);
            let code = told.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("nothing");
            let is_data = !expected.bytes().all(|byte| byte.is_ascii_alphabetic());
            if is_data {
                assert!(
                    code == "NOERROR" && told.contains(expected),
                    "{question} should get {expected}: {told}{}",
                    self.told()
                );
            } else {
                assert_eq!(code, *expected, "{question}: {told}{}", self.told());
            }
        }
    }

    pub(crate) fn dig(&self, question: &str) -> String {
        let mut words = question.split_whitespace().peekable();
        let (mut command, mut server) = (Command::new("dig"), SERVER[0]);
        command.args(["+tries=1", "+time=3", "+noall", "+comments", "+answer"]);
        while let Some(word) = words.next() {
            match (word, word.split_once('=')) {
                ("from", _) => {
                    let client = words.next().unwrap();
                    server = SERVER[usize::from(client.contains(':'))];
                    command.args(["-b", client]);
                }
                (_, Some((code, value))) => {
                    let text = || value.bytes().map(|byte| format!("{byte:02x}")).collect();
                    let hex: String = value.strip_prefix("x0").map_or_else(text, |rest| format!("0{rest}"));
                    command.arg(format!("+ednsopt={code}:{hex}"));
                }
                (word, None) => {
                    command.arg(word);
                }
            }
        }
        let output = command.arg(format!("@{server}")).output().expect("dig is there");
        String::from_utf8(output.stdout).unwrap()
    }
}
