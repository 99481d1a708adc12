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

/// nft takes comments of 127 bytes; rules of audited policies have `audit: ` before their label.
pub(crate) const COMMENT: usize = 127;
pub(crate) const LABEL: usize = 120;
/// What is kept of the end of a text that is too long: the direction and the number of the rule.
const TAIL: usize = 30;

/// The text itself if it is no longer than so many bytes. Else its beginning, a digest of all of it, and its end: two
/// long names that differ somewhere still differ.
pub(crate) fn shorten(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let digest = format!("..{:016x}..", digest([text]));
    let mut head = longest.saturating_sub(digest.len() + TAIL);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - TAIL;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}{digest}{}", &text[..head], &text[tail..])
}

/// What a chain of a fixed name is there for.
pub(crate) fn purpose(chain: &str) -> Option<&'static str> {
    Some(match chain.strip_prefix("audit/").unwrap_or(chain) {
        "egress-forward" => "policies of the source, for what passes through this node",
        "egress-input" => "policies of the source, for what is addressed to this node",
        "ingress-forward" => "policies of the destination",
        "related-errors" => "ICMP errors about connections that were let through, and our own resets",
        "cut" => "packets of connections that were cut",
        "cut-reset" => "answers TCP with a reset",
        "cut-output" => "this node must not go on with connections that were cut",
        "cut-prerouting" => "resets cut connections to Services in the name of the Service",
        "own-address" => "what a pod sends to itself through a Service",
        "from-outside" => "what came from outside through a Service, and goes to no pod",
        "gates" => "finds the cluster firewalls of a pod of another node",
        "translated" => "what came through a Service",
        "closed-source" | "closed-destination" => "addresses of this node's pods that no known pod has",
        "tunnels" => "packets for a tunnel of a node: none of a pod passes, and none that was translated",
        "tunnels/forward" => "packets for a tunnel: which go to a node",
        "tunnels/protocols" | "tunnels/forward/protocols" => "packets without ports: which are for a tunnel",
        "tunnels/refuse" => "no pod puts packets into the tunnels of nodes",
        "dns-policy" => "policies of pods that ask a DNS server, before the question is taken to namewall",
        "dns-policy/new" => "a question to a DNS server",
        "dns" => "takes questions to DNS servers to namewall",
        "dns/take" => "whose questions are taken",
        "dns/to" => "where questions are taken to",
        "dns/taken" => "questions that were taken are let in",
        "dns/own" => "ports of namewall's DNS server, for what was not taken there",
        "dns/refuse" => "nobody asks namewall's DNS server but by the server that is meant",
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_enough_stays_as_it_is() {
        assert_eq!(shorten("NetworkPolicy/shop/web egress rule 0", LABEL), "NetworkPolicy/shop/web egress rule 0");
        let longest = "x".repeat(LABEL);
        assert_eq!(shorten(&longest, LABEL), longest);
    }

    #[test]
    fn what_is_too_long_keeps_its_ends_and_differs_from_all_others() {
        let label =
            |middle: &str| format!("NetworkPolicy/shop/{}{middle}{} egress rule 12", "a".repeat(90), "b".repeat(90));
        let (one, other) = (shorten(&label("1"), LABEL), shorten(&label("2"), LABEL));
        assert_ne!(one, other);
        assert_eq!(one.len(), LABEL);
        assert!(one.starts_with("NetworkPolicy/shop/aaa") && one.ends_with("b egress rule 12"), "{one}");
        let wide = "ä".repeat(100);
        assert!(shorten(&wide, LABEL).len() <= LABEL, "it is cut between characters");
    }
}
