//! A network and a view of the files of one's own: there the server has port 53,
//! and resolv.conf says so.

use crate::program::run;
use nix::mount::{MsFlags, mount};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};
use nix::unistd::geteuid;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const INSIDE: &str = "NAMEWALL_TEST_INSIDE";

/// The files that say how names are resolved, for this process and those it starts.
pub(crate) struct Inside {
    folder: PathBuf,
}

/// Runs the test that asks again, in namespaces of its own, where it gets what is inside.
pub(crate) fn inside() -> Option<Inside> {
    if std::env::var_os(INSIDE).is_some() {
        return Some(Inside::new());
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    let exe = std::env::current_exe().unwrap();
    let variable = format!("{INSIDE}=1");
    let mut arguments = vec!["--net", "--mount"];
    if !geteuid().is_root() {
        arguments.extend(["--user", "--map-root-user"]);
    }
    arguments.extend(["env", &variable, exe.to_str().unwrap(), "--exact", test, "--nocapture"]);
    let said = run("unshare", &arguments);
    assert!(said.contains("1 passed"), "{said}");
    None
}

impl Inside {
    fn new() -> Self {
        raise_loopback();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inside-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let inside = Self { folder };
        inside.put("resolv.conf", "");
        inside.put("nsswitch.conf", "hosts: files dns\n");
        // A daemon that caches names would ask in the namespace it lives in.
        if Path::new("/run/nscd").exists() {
            mount(Some("none"), "/run/nscd", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        }
        inside
    }

    /// Puts a file over the one in /etc, if there is one to put it over.
    fn put(&self, name: &str, text: &str) {
        let (file, etc) = (self.folder.join(name), Path::new("/etc").join(name));
        fs::write(&file, text).unwrap();
        if let Ok(place) = fs::canonicalize(&etc) {
            mount(Some(&file), &place, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        }
    }

    /// Our server alone, and these lines.
    pub(crate) fn configure(&self, lines: &str) {
        fs::write(self.folder.join("resolv.conf"), format!("nameserver 127.0.0.1\n{lines}\n")).unwrap();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A new network has its loopback, and it is down.
fn raise_loopback() {
    const LENGTH: u32 = 32;
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 0x05;
    const UP: u32 = 1;
    let (kernel, flags) = (NetlinkAddr::new(0, 0), SockFlag::SOCK_CLOEXEC);
    let netlink = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute).unwrap();
    let mut message = LENGTH.to_ne_bytes().to_vec();
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    // A number, no port, and the link: any family, any type, the first one; to be up, and that is all to change.
    for field in [1, 0, 0, 1, UP, UP] {
        message.extend(u32::to_ne_bytes(field));
    }
    sendto(netlink.as_raw_fd(), &message, &kernel, MsgFlags::empty()).unwrap();
    let mut answer = [0; 256];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
    assert_eq!(answer[..length].get(16..20), Some(&[0; 4][..]), "the kernel does not raise lo");
}
