//! What a probe expects: `allow`, `deny by NetworkPolicy/shop/db`, `depends`,
//! `allow by AdminNetworkPolicy/egress rule 0, would deny`.

use namewall_policy::Prediction;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    pub verdict: Prediction,
    pub by: Option<By>,
    /// That audited policies would have denied it (S11).
    pub would_deny: Option<Option<By>>,
}

/// Which policy decided, and by which of its rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct By {
    /// `Kind/name`, `Kind/namespace/name`, or `default`.
    pub policy: String,
    pub rule: Option<u32>,
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (verdict, audit) = match text.split_once(',') {
            Some((verdict, audit)) => (verdict.trim(), Some(audit.trim())),
            None => (text.trim(), None),
        };
        let would_deny = match audit {
            None => None,
            Some(audit) => {
                let rest = audit
                    .strip_prefix("would deny")
                    .ok_or_else(|| format!("`{audit}`: only `would deny [by …]` may follow"))?;
                Some(parse_by(rest.trim())?)
            }
        };
        let (word, rest) = verdict.split_once(' ').unwrap_or((verdict, ""));
        let verdict = match word {
            "allow" => Prediction::Allow,
            "deny" => Prediction::Deny,
            "depends" => Prediction::Depends,
            other => return Err(format!("`{other}` is no verdict; use allow, deny or depends")),
        };
        Ok(Self { verdict, by: parse_by(rest.trim())?, would_deny })
    }
}

fn parse_by(text: &str) -> Result<Option<By>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["by", policy] => Ok(Some(By { policy: (*policy).to_owned(), rule: None })),
        ["by", policy, "rule", rule] => {
            let rule = rule.parse().map_err(|_| format!("`{rule}` is no rule's number; they count from 0"))?;
            Ok(Some(By { policy: (*policy).to_owned(), rule: Some(rule) }))
        }
        _ => {
            Err(format!("`{text}` is not understood; write `by KIND/NAME` or `by KIND/NAMESPACE/NAME`, then `rule N`"))
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by {}", self.policy)?;
        self.rule.map_or(Ok(()), |rule| write!(f, " rule {rule}"))
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if let Some(by) = &self.by {
            write!(f, " {by}")?;
        }
        match &self.would_deny {
            None => Ok(()),
            Some(None) => f.write_str(", would deny"),
            Some(Some(by)) => write!(f, ", would deny {by}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_read_as_they_are_written() {
        for text in [
            "allow",
            "depends",
            "deny by NetworkPolicy/shop/db",
            "allow by AdminNetworkPolicy/egress rule 0",
            "allow by default, would deny",
            "allow, would deny by ClusterNetworkPolicy/x rule 2",
        ] {
            assert_eq!(text.parse::<Expectation>().unwrap().to_string(), text);
        }
        for bad in ["", "maybe", "allow because", "deny by", "allow by X rule y", "allow, would allow"] {
            assert!(bad.parse::<Expectation>().is_err(), "{bad}");
        }
    }
}
