//! The binary in a folder of its own, run to its end or serving.

use expect_test::Expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a busy machine may take for anything that comes in the end.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A folder with a Corefile, which is gone with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(corefile: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("namewall-dns-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        folder.write("Corefile", corefile);
        folder
    }

    /// Puts a file there whole, as editors do: nobody reads half of it.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let draft = self.0.join(format!("{name}.draft"));
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(&draft, self.0.join(name)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
        command.arg("dns").args(args).current_dir(&self.0).stdin(Stdio::null());
        // The cluster of who runs the tests is not asked.
        command.env("KUBECONFIG", "/no/such/kubeconfig");
        command
    }

    /// Runs it to its end; gives its code and what it prints, standard error after standard output.
    pub(crate) fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.code(), printed)
    }

    pub(crate) fn check(&self, args: &[&str], code: i32, expected: Expect) {
        let (ended, printed) = self.run(args);
        expected.assert_eq(&printed);
        assert_eq!(ended, Some(code), "{printed}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that serves, and ends with the test.
pub(crate) struct Serving {
    pub(crate) folder: Folder,
    child: Child,
    told: Arc<Mutex<Vec<String>>>,
}

impl Serving {
    pub(crate) fn start(corefile: &str) -> Self {
        Self::start_in(Folder::new(corefile))
    }

    pub(crate) fn start_in(folder: Folder) -> Self {
        Self::start_with(folder, &[])
    }

    /// Starts it and waits until it listens.
    pub(crate) fn start_with(folder: Folder, args: &[&str]) -> Self {
        let mut child = folder.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let told = told.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                lines.for_each(|line| told.lock().unwrap().push(line));
            });
        }
        let serving = Self { folder, child, told };
        serving.wait_for("serving DNS", 1);
        serving
    }

    pub(crate) fn told(&self) -> String {
        self.told.lock().unwrap().join("\n")
    }

    /// Waits until a text was printed so often, in lines of their own.
    pub(crate) fn wait_for(&self, text: &str, times: usize) {
        let began = Instant::now();
        while self.told.lock().unwrap().iter().filter(|line| line.contains(text)).count() < times {
            assert!(began.elapsed() < TEST_TIMEOUT, "it never says `{text}`:\n{}", self.told());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Has another Corefile read, and waits until that is done, one way or the other.
    pub(crate) fn reload(&self, corefile: &str) {
        let count = || {
            let is_end = |line: &&String| line.contains("was read again") || line.contains("it is served as it was");
            self.told.lock().unwrap().iter().filter(is_end).count()
        };
        let before = count();
        self.folder.write("Corefile", corefile);
        self.signal(Signal::SIGHUP);
        let began = Instant::now();
        while count() == before {
            assert!(began.elapsed() < TEST_TIMEOUT, "it does not read it again:\n{}", self.told());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, self.told());
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "it does not end:\n{}", self.told());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that asks one question after the other, and must get an answer to each.
pub(crate) struct Asker(UdpSocket);

impl Asker {
    pub(crate) fn of(server: SocketAddr) -> Self {
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self(socket)
    }

    /// What becomes of a question: `192.0.2.1`, or `REFUSED` and the like.
    pub(crate) fn outcome(&self, id: u16, label: &str) -> String {
        self.0.send(&query(id, label)).unwrap();
        let mut buffer = [0; 1_232];
        let length = self.0.recv(&mut buffer).expect("an answer comes");
        match buffer[3] & 0xf {
            0 => Ipv4Addr::from(*buffer[..length].last_chunk::<4>().unwrap()).to_string(),
            3 => "NXDOMAIN".to_owned(),
            5 => "REFUSED".to_owned(),
            other => format!("response code {other}"),
        }
    }

    /// The answer's last four bytes, which are the address of a single A record; or none if nothing comes.
    pub(crate) fn ask(&self, id: u16, label: &str) -> Option<[u8; 4]> {
        self.0.send(&query(id, label)).unwrap();
        let mut buffer = [0; 1_232];
        let length = self.0.recv(&mut buffer).ok()?;
        assert_eq!(buffer[..2], id.to_be_bytes());
        buffer[..length].last_chunk().copied()
    }
}

/// A question for the addresses of `LABEL.example`.
pub(crate) fn query(id: u16, label: &str) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0, label.len() as u8]);
    query.extend(label.as_bytes());
    query.extend(b"\x07example\0\0\x01\0\x01");
    query
}
