//! Names for chains and sets. Where the content is the identity the name is a
//! digest of it; where a policy is, its own name, as far as nft allows.

use namewall_policy::model::{PolicyKind, PolicyRef};
use sha2::{Digest, Sha256};

/// The kernel takes 127 bytes; the rest is for a digest where it is cut.
const LONGEST: usize = 100;

/// The first eight bytes of a SHA-256: nobody can find a second text for it.
pub(crate) fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let bytes = hash.finalize();
    bytes.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Two versions of NetworkPolicy may have one name.
pub(crate) fn of_policy(id: &PolicyRef) -> String {
    match id.kind {
        PolicyKind::NetworkPolicyV1Beta1 => format!("v1beta1/{id}"),
        _ => id.to_string(),
    }
}

/// `kind/0123456789abcdef`.
pub(crate) fn by_content(kind: &str, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    format!("{kind}/{:016x}", digest(parts))
}

/// The name itself if nft can say it, else as much of it as it can and a digest.
pub(crate) fn chain_name(name: &str) -> String {
    let sayable = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if name.len() <= LONGEST && name.chars().all(sayable) {
        return name.to_owned();
    }
    let cut: String = name.chars().take(LONGEST / 2).map(|c| if sayable(c) { c } else { '_' }).collect();
    by_content(&cut, [name])
}
