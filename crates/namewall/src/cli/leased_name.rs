//! The argument of `namewall leases`.

use namewall_policy::domain::{DomainName, NameError};
use std::str::FromStr;

/// Whose leases are listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LeasedName {
    pub(crate) name: DomainName,
    /// Not of the name itself.
    pub(crate) only_under: bool,
}

impl LeasedName {
    pub(crate) fn includes(&self, name: &DomainName) -> bool {
        name.is_under(&self.name) || (!self.only_under && *name == self.name)
    }
}

impl FromStr for LeasedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let under = text.strip_prefix("**.").or_else(|| text.strip_prefix("*."));
        Ok(Self { name: under.unwrap_or(text).parse()?, only_under: under.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_includes_names_under_it_and_a_pattern_only_those() {
        let includes = |asked: &str, name: &str| {
            asked.parse::<LeasedName>().expect("it is a name").includes(&name.parse().expect("it is a name"))
        };
        assert!(includes("example.com", "example.com") && includes("example.com", "a.b.example.com"));
        assert!(!includes("*.example.com", "example.com") && includes("*.example.com", "a.b.example.com"));
        assert!(includes("**.example.com.", "a.Example.com") && !includes("*.example.com", "anexample.com"));
        for wrong in ["*", "*.", "a.*.example.com", ""] {
            assert!(wrong.parse::<LeasedName>().is_err(), "{wrong}");
        }
    }
}
