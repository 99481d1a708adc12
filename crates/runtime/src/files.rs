//! Opening files that others may have put something else in the place of. Only
//! regular files are opened: a pipe would be waited for, and a device has no end.

use rustix::fs::OFlags;
use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// What is done with a pipe that a path names. `namewall check <(helm template …)` means one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pipes {
    /// It is opened.
    Read,
    /// It is refused: its writer may never come.
    Refuse,
}

/// Why a path is not opened: what it is instead of a regular file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is {0}; only regular files, and links to them, are read")]
pub struct NotRegular(&'static str);

impl NotRegular {
    fn of(found: FileType) -> Self {
        Self(match () {
            () if found.is_fifo() => "a pipe",
            () if found.is_socket() => "a socket",
            () if found.is_dir() => "a folder",
            () => "a device",
        })
    }
}

/// Opens a regular file to read it; or, where they are read, a pipe.
pub fn open(path: &Path, pipes: Pipes) -> io::Result<Result<File, NotRegular>> {
    let is_read = |found: FileType| found.is_file() || (found.is_fifo() && pipes == Pipes::Read);
    // Before it is opened: to open a device may already do something.
    let found = fs::metadata(path)?.file_type();
    if !is_read(found) {
        return Ok(Err(NotRegular::of(found)));
    }
    // Another file may have come in its place.
    let mut options = OpenOptions::new();
    options.read(true);
    if pipes == Pipes::Refuse {
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    }
    let file = options.open(path)?;
    let found = file.metadata()?.file_type();
    Ok(if is_read(found) { Ok(file) } else { Err(NotRegular::of(found)) })
}

/// Opens a regular file to read it. All else is an error.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open(path, Pipes::Refuse)?.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_and_links_to_them_are_opened() {
        let folder = std::env::temp_dir().join(format!("namewall-files-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "text").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(open_regular(&file).is_ok() && open_regular(&link).is_ok());
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        for (path, what) in
            [(socket.as_path(), "a socket"), (&folder, "a folder"), (Path::new("/dev/zero"), "a device")]
        {
            let why = open_regular(path).expect_err("it is no regular file").to_string();
            assert!(why.contains(what), "{why}");
        }
        assert_eq!(open_regular(&folder.join("none")).expect_err("nothing").kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
