//! The files of this machine, for Corefiles that import others.

use namewall_corefile::{Files, MAX_BYTES};
use namewall_runtime::files::open_regular;
use std::io::{self, Read};
use std::path::Path;

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        // One byte more than is accepted, so that a file that is too long is noticed.
        open_regular(path)?.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        // A Corefile without a folder in its path is in the current folder.
        let is_current = folder.as_os_str().is_empty();
        let entries = std::fs::read_dir(if is_current { Path::new(".") } else { folder })?;
        entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_has_this_crate() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(Disk.read(&folder.join("Cargo.toml")).unwrap().contains("namewall-dns-firewall"));
        for folder in [folder, Path::new("")] {
            assert!(Disk.names(folder).unwrap().iter().any(|name| name == "Cargo.toml"));
        }
        assert_eq!(Disk.like(Path::new(""), "*.toml").unwrap(), ["Cargo.toml"]);
        assert!(Disk.read(folder).is_err() && Disk.read(&folder.join("none")).is_err());
    }

    #[test]
    fn s10_1_what_is_no_regular_file_is_refused_and_nobody_waits_for_it() {
        let pipe = std::env::temp_dir().join(format!("namewall-disk-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        let (heard, hears) = std::sync::mpsc::channel();
        let path = pipe.clone();
        std::thread::spawn(move || heard.send([Disk.read(&path), Disk.read(Path::new("/dev/zero"))]));
        let read = hears.recv_timeout(std::time::Duration::from_secs(60)).expect("nobody waits for a writer");
        std::fs::remove_file(&pipe).expect("it is ours");
        let said = read.map(|read| read.expect_err("it is refused").to_string());
        assert!(said[0].contains("it is a pipe") && said[1].contains("it is a device"), "{said:?}");
    }
}
