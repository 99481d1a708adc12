//! What this machine lacks to be a node.

use super::{Check, health};
use crate::commands::run::running;
use namewall_cni::NAME;
use namewall_cni::install::Folders;
use namewall_dataplane::conntrack::Conntrack;
use namewall_dataplane::nflog::DenialLog;
use namewall_dataplane::nft::{Nft, NftError, Settings};
use serde_json::json;
use std::path::Path;

/// A group of the log that nobody listens to, to try whether there is a log.
const UNUSED_GROUP: u16 = u16::MAX;
/// How bridges begin that pods are at. Another's may have containers that are no pods.
const POD_BRIDGES: [&str; 3] = ["cni", "cbr", "kube-bridge"];

/// With these on, the kernel sends a packet on to hops that its sender has named. Each counts only if it is on for all
/// interfaces.
const SOURCE_ROUTES: [&str; 3] =
    ["net/ipv4/conf/all/accept_source_route", "net/ipv6/conf/all/seg6_enabled", "net/ipv6/conf/all/rpl_seg_enabled"];

pub(super) fn look() -> Vec<Check> {
    let mut checks = vec![nftables()];
    // Without rights everything else fails too, and says nothing.
    if checks[0].what != RIGHTS {
        checks.extend([connections(), denials()]);
    }
    checks.push(forwarding(&setting("net/ipv4/ip_forward")));
    checks.push(source_routes(SOURCE_ROUTES.map(|path| (path, setting(path)))));
    let bridges = bridges(Path::new("/sys/class/net"));
    checks.push(bridged(
        &bridges,
        &["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"].map(setting),
    ));
    checks.push(plugin(&Folders::usual(Path::new("/"))));
    checks.extend(process());
    checks
}

/// The namewall of this node, by what it says of itself.
fn process() -> Vec<Check> {
    let Ok(running) = running() else {
        let advice = "start `namewall agent` or `namewall run`";
        return vec![Check::hint("namewall", "none runs here, or not as this user", advice)];
    };
    match running.ask(&json!({"status": {}})) {
        Ok(told) => health::look(&told),
        Err(error) => {
            let advice = "look at its log and restart it; the rules in the kernel stay until it is back";
            vec![Check::missing("namewall", error.to_string(), advice)]
        }
    }
}

const RIGHTS: &str = "rights";

fn nftables() -> Check {
    let release = setting("kernel/osrelease").unwrap_or_else(|| "of unknown version".to_owned());
    match Nft::open(Settings::default()) {
        Ok(nft) if !nft.can_reset() => Check::hint(
            "kernel",
            format!("Linux {release} cannot send resets: packets of connections that were cut are dropped"),
            "load nft_reject_inet: modprobe nft_reject_inet",
        ),
        Ok(_) => Check::good("kernel", format!("Linux {release} can do all that is needed")),
        Err(NftError::Rights) => Check::missing(
            RIGHTS,
            "none to change nftables, so the kernel could not be tried",
            "run it as root, or with the capability NET_ADMIN",
        ),
        Err(error @ NftError::TooOld { .. }) => {
            Check::missing("kernel", error.to_string(), "use Linux 6.12 or newer on this node")
        }
        Err(error) => {
            let advice = "load nf_tables and nf_conntrack: modprobe nf_tables nf_conntrack";
            Check::missing("kernel", format!("Linux {release}: {:#}", anyhow::Error::from(error)), advice)
        }
    }
}

fn connections() -> Check {
    let listed = Conntrack::open().and_then(|mut conntrack| conntrack.list());
    match listed {
        Ok(known) => Check::good("connections", format!("{} are tracked", known.len())),
        Err(error) => Check::missing(
            "connections",
            format!("cannot be listed, so that none could be cut: {:#}", anyhow::Error::from(error)),
            "load nf_conntrack_netlink: modprobe nf_conntrack_netlink",
        ),
    }
}

fn denials() -> Check {
    match DenialLog::open(UNUSED_GROUP) {
        Ok(_) => Check::good("denials", "are told by the kernel"),
        Err(error) => Check::missing(
            "denials",
            format!("cannot be heard of: {:#}", anyhow::Error::from(error)),
            "load nfnetlink_log: modprobe nfnetlink_log",
        ),
    }
}

/// A setting of the kernel; none where what it sets is not loaded.
fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(Path::new("/proc/sys").join(path)).ok().map(|text| text.trim().to_owned())
}

fn forwarding(set: &Option<String>) -> Check {
    match set.as_deref() {
        Some("0") | None => Check::hint(
            "forwarding",
            "is off: pods' packets go no further than this machine",
            "sysctl -w net.ipv4.ip_forward=1, unless no pods run here",
        ),
        Some(_) => Check::good("forwarding", "is on"),
    }
}

/// The guard drops such packets of pods. Nothing judges where those of other hosts go on to.
fn source_routes(settings: [(&str, Option<String>); 3]) -> Check {
    let on = settings.iter().filter(|(_, value)| value.as_deref().is_some_and(|value| value != "0"));
    let on: Vec<String> = on.map(|(path, _)| path.replace('/', ".")).collect();
    if on.is_empty() {
        return Check::good("source routes", "are not followed");
    }
    Check::hint(
        "source routes",
        format!("{} on: a host outside can send packets on to pods, past their ingress policies", on.join(", ")),
        format!("sysctl -w {}", on.iter().map(|name| format!("{name}=0")).collect::<Vec<_>>().join(" ")),
    )
}

/// Whether the container runtime asks us before a pod starts.
fn plugin(folders: &Folders) -> Check {
    let alone = "pods are known by their addresses alone, and may lose their first packets";
    let advice = "namewall cni install, or cni.enabled in the chart";
    let used = match folders.used() {
        Ok(Some(used)) => used,
        Ok(None) => {
            let found = format!("there is no configuration in {}: {alone}", folders.configurations.display());
            return Check::hint("CNI", found, "if pods run here, set --conf-dir of `namewall cni install`");
        }
        Err(error) => return Check::hint("CNI", format!("{:#}", anyhow::Error::from(error)), advice),
    };
    let text = std::fs::read_to_string(&used).unwrap_or_default();
    let list: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let mut plugins = list["plugins"].as_array().into_iter().flatten();
    if !plugins.any(|one| one["type"] == NAME) {
        return Check::hint("CNI", format!("{} does not name {NAME}: {alone}", used.display()), advice);
    }
    let binary = folders.plugins.join(NAME);
    if !binary.is_file() {
        let found = format!("{} names {NAME}, and there is no {}: no pod can start", used.display(), binary.display());
        return Check::missing("CNI", found, "namewall cni install --bin-dir where the runtime finds plugins");
    }
    Check::good("CNI", format!("{} asks the agent before a pod starts", used.display()))
}

fn bridges(interfaces: &Path) -> Vec<String> {
    let found = std::fs::read_dir(interfaces).into_iter().flatten().flatten();
    let mut names: Vec<String> = found
        .filter(|entry| entry.path().join("bridge").is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Packets between two ports of a bridge do not meet the firewall by themselves.
fn bridged(bridges: &[String], set: &[Option<String>]) -> Check {
    if bridges.is_empty() {
        return Check::good("bridges", "there are none");
    }
    let all = bridges.join(", ");
    if set.iter().all(|value| value.as_deref() == Some("1")) {
        return Check::good("bridges", format!("packets within {all} are seen"));
    }
    let found = format!("packets within {all} are not seen: pods there reach each other, whatever policies say");
    let advice = "modprobe br_netfilter, then sysctl -w net.bridge.bridge-nf-call-iptables=1 \
                  net.bridge.bridge-nf-call-ip6tables=1";
    if bridges.iter().any(|name| POD_BRIDGES.iter().any(|known| name.starts_with(known))) {
        Check::missing("bridges", found, advice)
    } else {
        Check::hint("bridges", found, format!("if pods are there: {advice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn state(bridges: &[&str], set: [Option<&str>; 2]) -> State {
        let bridges: Vec<String> = bridges.iter().map(|&name| name.to_owned()).collect();
        bridged(&bridges, &set.map(|value| value.map(str::to_owned))).state
    }

    #[test]
    fn a_bridge_of_pods_must_be_seen() {
        assert_eq!(state(&[], [None, None]), State::Good);
        assert_eq!(state(&["cni0"], [Some("1"), Some("1")]), State::Good);
        assert_eq!(state(&["cni0"], [Some("1"), Some("0")]), State::Missing, "IPv6 would be open");
        assert_eq!(state(&["cni0"], [None, None]), State::Missing, "br_netfilter is not loaded");
        assert_eq!(state(&["docker0"], [None, None]), State::Hint, "its containers need not be pods");
    }

    #[test]
    fn a_runtime_that_does_not_ask_us_is_told_of() {
        let root = std::env::temp_dir().join(format!("namewall-doctor-{}", std::process::id()));
        let folders = Folders::usual(&root);
        let list = |kinds: &[&str]| {
            let plugins: Vec<_> = kinds.iter().map(|kind| serde_json::json!({"type": kind})).collect();
            let text = serde_json::json!({"cniVersion": "1.0.0", "plugins": plugins}).to_string();
            std::fs::write(folders.configurations.join("10-pods.conflist"), text).expect("a file");
        };
        assert_eq!(plugin(&folders).state, State::Hint, "there is nothing");
        std::fs::create_dir_all(&folders.configurations).expect("a folder");
        list(&["bridge"]);
        assert_eq!(plugin(&folders).state, State::Hint, "it is not chained");
        list(&["bridge", "namewall"]);
        assert_eq!(plugin(&folders).state, State::Missing, "no pod can start");
        std::fs::create_dir_all(&folders.plugins)
            .and_then(|()| std::fs::write(folders.plugins.join(NAME), ""))
            .expect("a file");
        assert_eq!(plugin(&folders).state, State::Good);
        std::fs::remove_dir_all(&root).expect("it is removed");
    }

    #[test]
    fn source_routes_that_are_followed_are_told_of() {
        let check = |values: [Option<&str>; 3]| {
            let mut values = values.into_iter();
            source_routes(SOURCE_ROUTES.map(|path| (path, values.next().flatten().map(str::to_owned))))
        };
        assert_eq!(check([Some("0"), Some("0"), None]).state, State::Good);
        let found = check([Some("1"), Some("0"), Some("1")]);
        assert_eq!(found.state, State::Hint);
        let advice = found.advice.expect("advice");
        assert_eq!(advice, "sysctl -w net.ipv4.conf.all.accept_source_route=0 net.ipv6.conf.all.rpl_seg_enabled=0");
    }

    #[test]
    fn forwarding_that_is_off_is_told_of() {
        assert_eq!(forwarding(&Some("1".to_owned())).state, State::Good);
        assert_eq!(forwarding(&Some("0".to_owned())).state, State::Hint);
    }
}
