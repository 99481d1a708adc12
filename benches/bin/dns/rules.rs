//! The rules of a DNS firewall, as people write them, for namewall and for CoreDNS: the same in both, and none
//! of them speaks of what is asked, so that every question meets all of them.

use crate::forwarder::{LISTEN, UPSTREAM};

/// What is refused, in the words of both.
fn rule(number: u32) -> (String, String) {
    let low = number % 256;
    match number % 5 {
        0 => (
            format!("in-cidr(client_ip, 10.{low}.0.0/16) and type == 'A'"),
            format!("incidr(client_ip(), '10.{low}.0.0/16') && type() == 'A'"),
        ),
        1 => (format!("name == 'host{number}.example.com.'"), format!("name() == 'host{number}.example.com.'")),
        2 => (
            format!("type == 'TXT' and in-cidr(client_ip, 192.168.{low}.0/24)"),
            format!("type() == 'TXT' && incidr(client_ip(), '192.168.{low}.0/24')"),
        ),
        3 => (format!("name =~ '^ads{number}\\.'"), format!("name() matches '^ads{number}[.]'")),
        _ => {
            (format!("has_suffix(name, '.team{number}.example.')"), format!("name() endsWith '.team{number}.example.'"))
        }
    }
}

pub(crate) fn firewall(count: u32) -> String {
    let rules: String = (0..count).map(|number| format!("    refuse {}\n", rule(number).0)).collect();
    let (address, port) = (LISTEN.ip(), LISTEN.port());
    format!(
        ".:{port} {{\n  bind {address}\n  firewall query {{\n{rules}    default allow\n  }}\n  forward . {UPSTREAM}\n}}\n"
    )
}

/// What no condition refuses is for this block; anything else is for none, which is refused.
pub(crate) fn view(count: u32) -> String {
    let rules: String = (0..count).map(|number| format!("    expr !({})\n", rule(number).1)).collect();
    format!(".:{} {{\n  view rules {{\n{rules}  }}\n  forward . {UPSTREAM}\n}}\n", LISTEN.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_corefile::{NoFiles, read};

    #[test]
    fn every_rule_is_one_and_nothing_is_warned_of() {
        let corefile = read("Corefile", &firewall(100), &NoFiles, &|_| None).unwrap();
        assert_eq!((corefile.servers[0].firewalls[0].rules.len(), corefile.warnings.len()), (100, 0));
        assert_eq!(view(100).matches("expr !(").count(), 100);
    }
}
