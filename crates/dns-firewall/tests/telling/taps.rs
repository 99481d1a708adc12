//! Corefiles with a tap, and what its server counts.

use crate::support::{Serving, get};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A path that no other test uses.
pub(crate) fn path(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("namewall-{}-{number}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

pub(crate) fn rules(tap: &str) -> String {
    format!(
        ".:PORT {{
   dnstap {tap}
   firewall query {{
      block name == 'blocked.example.'
      drop  name == 'silent.example.'
      allow true
   }}
   firewall response {{
      refuse name == 'bad.example.'
      default allow
   }}
   forward . UPSTREAM
}}"
    )
}

pub(crate) fn lost(serving: &Serving) -> u64 {
    let text = get(serving.endpoints.addresses()[0], "/metrics").1;
    let line = text.lines().find(|line| line.starts_with("namewall_dnstap_messages_lost_total{")).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

pub(crate) fn blocked(tap: &Path) -> String {
    format!(".:PORT {{\n prometheus :0\n dnstap {}\n firewall query {{ block true }}\n}}", tap.display())
}
