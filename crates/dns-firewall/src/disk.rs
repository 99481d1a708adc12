//! The files of this machine, for Corefiles that import others.

use namewall_corefile::{Files, MAX_BYTES};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        // One byte more than is accepted, so that a file that is too long is noticed.
        File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
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
}
