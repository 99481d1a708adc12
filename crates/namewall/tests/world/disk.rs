//! A disk of the test's own, that has no room or cannot be written.

use namewall_testbed::give_up;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

/// Gives this process mounts of its own, which end with it. Call it before the first thread.
pub(crate) fn own_mounts() {
    let nothing: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing))
        .unwrap_or_else(|errno| give_up(format!("the test needs a mount namespace: {errno}")));
}

/// A file system of 1 MB.
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    pub(crate) fn mount(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        let kind = Some("tmpfs");
        mount(kind, &folder, kind, MsFlags::empty(), Some("size=1m,mode=0700"))
            .unwrap_or_else(|errno| give_up(format!("the test mounts a tmpfs: {errno}")));
        Self { folder }
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    /// Leaves no room for another byte.
    pub(crate) fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let error = std::iter::repeat_with(|| ballast.write_all(&[0; 4096])).find_map(Result::err);
        assert_eq!(error.and_then(|error| error.raw_os_error()), Some(Errno::ENOSPC as i32));
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    pub(crate) fn set_read_only(&self, is_read_only: bool) {
        let (kind, how) = (Some("tmpfs"), if is_read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() });
        mount(kind, &self.folder, kind, MsFlags::MS_REMOUNT | how, Some("size=1m")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        umount2(&self.folder, MntFlags::MNT_DETACH).ok();
    }
}
