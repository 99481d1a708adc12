//! JUnit's XML: a suite a scenario, a case a probe.

use super::{Played, counts};
use crate::picture::escape_xml;
use anyhow::Result;
use std::io::Write;

pub(super) fn print(out: &mut impl Write, played: &[Played]) -> Result<()> {
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(out, "<testsuites>")?;
    for one in played {
        let Played { scenario, outcome, seconds } = one;
        let (total, failures) = counts(outcome);
        let errors = usize::from(outcome.broken.is_some()) + one.unread().len();
        writeln!(
            out,
            r#"  <testsuite name="{}" file="{}" tests="{}" failures="{failures}" errors="{errors}" time="{seconds:.3}">"#,
            escape_xml(&scenario.name),
            escape_xml(&scenario.file),
            total + errors,
        )?;
        for probe in &outcome.probes {
            let expected = probe.probe.expect.to_string();
            let case = Case { line: probe.probe.source.line, name: &probe.probe.text, class: &scenario.name };
            match probe.passed && !probe.depends_on.is_empty() {
                true => case.print_passed(out, &probe.got)?,
                false => case.print(out, (!probe.passed).then_some((&expected, &probe.got)))?,
            }
        }
        for connection in &outcome.connections {
            let (expected, name) = (connection.expect.to_string(), format!("connection {}", connection.name));
            let case = Case { line: connection.source.line, name: &name, class: &scenario.name };
            case.print(out, (!connection.passed).then_some((&expected, &connection.got)))?;
        }
        for lookup in &outcome.lookups {
            let case = Case { line: lookup.source.line, name: &lookup.text, class: &scenario.name };
            case.print(out, (!lookup.passed).then_some((&lookup.expected, &lookup.got)))?;
        }
        if let Some(message) = &outcome.broken {
            let message = escape_xml(message);
            writeln!(out, "    <testcase name=\"steps\"><error message=\"{message}\"/></testcase>")?;
        }
        for finding in one.unread() {
            let message = escape_xml(&finding.to_string());
            writeln!(out, "    <testcase name=\"input\"><error message=\"{message}\"/></testcase>")?;
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")?;
    Ok(())
}

/// A test case in JUnit's words.
struct Case<'a> {
    name: &'a str,
    class: &'a str,
    line: u32,
}

impl Case<'_> {
    fn open(&self, out: &mut impl Write) -> Result<()> {
        let (name, class) = (escape_xml(self.name), escape_xml(self.class));
        write!(out, r#"    <testcase name="{name}" classname="{class}" line="{}""#, self.line)?;
        Ok(())
    }

    /// A case that passed, with what there is to say about it.
    fn print_passed(&self, out: &mut impl Write, got: &str) -> Result<()> {
        self.open(out)?;
        writeln!(out, ">\n      <system-out>{}</system-out>\n    </testcase>", escape_xml(got))?;
        Ok(())
    }

    fn print(&self, out: &mut impl Write, failure: Option<(&String, &String)>) -> Result<()> {
        self.open(out)?;
        let Some((expected, got)) = failure else {
            writeln!(out, "/>")?;
            return Ok(());
        };
        let (expected, got) = (escape_xml(expected), escape_xml(got));
        writeln!(out, ">\n      <failure message=\"expected {expected}\">got {got}</failure>\n    </testcase>")?;
        Ok(())
    }
}
