//! `namewall matrix`.

use crate::cli::{By, Matrix as Args, MatrixFormat};
use crate::input::{Loaded, Origin};
use crate::output;
use crate::picture;
use anyhow::Result;
use namewall_policy::addr::AddrRange;
use namewall_policy::ask::Host;
use namewall_policy::domain::DomainPattern;
use namewall_policy::port::{Traffic, TransportPort};
use namewall_policy::reach::{CellId, GroupId, Groups, Matrix, OutsideRange, Reachable};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;

mod chart;
mod exposure;
mod pair;
mod rows;
mod text;

pub(crate) fn run<I: Origin>(args: &Args<I>) -> Result<ExitCode> {
    let loaded = args.input.load()?;
    loaded.report_errors();
    if args.exposure {
        return exposure::run(args, &loaded);
    }
    let view = View::new(args, &loaded)?;
    let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout());
    let printed = match args.output {
        MatrixFormat::Text => text::print(&mut output::stdout(), &view),
        MatrixFormat::Json => rows::print_json(&mut out, &view),
        MatrixFormat::Json2 => loaded.unread.wrap(&mut out, "pairs", |out| rows::print_json(out, &view)),
        MatrixFormat::Csv => rows::print_csv(&mut out, &view),
        MatrixFormat::Md => rows::print_markdown(&mut out, &view),
        MatrixFormat::Dot => picture::print_dot(&mut out, &chart::chart(&view)),
        MatrixFormat::Svg => picture::print_svg(&mut out, &chart::chart(&view)),
        MatrixFormat::Html => picture::print_html(&mut out, &chart::chart(&view)),
    };
    output::unless_closed(printed.and_then(|()| Ok(out.flush()?)))?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

/// The rows of a matrix.
pub(crate) fn rows(by: By, matrix: &Matrix<'_>) -> Groups {
    match by {
        By::Workload => Groups::by_workload(matrix),
        By::Pod => Groups::by_pod(matrix),
    }
}

/// A matrix as asked for: with a focus, for a port.
pub(crate) struct View<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) matrix: Matrix<'a>,
    pub(crate) groups: Groups,
    focus: Vec<GroupId>,
    port: Option<TransportPort>,
}

impl<'a> View<'a> {
    fn new<I: Origin>(args: &Args<I>, loaded: &'a Loaded) -> Result<Self> {
        let by = args.by.unwrap_or(match args.output {
            MatrixFormat::Json => By::Pod,
            _ => By::Workload,
        });
        let matrix = loaded.matrix();
        let groups = rows(by, &matrix);
        let mut view = View { loaded, matrix, groups, focus: Vec::new(), port: args.port };
        view.focus = args.focus.iter().map(|host| view.rows_of(host)).collect::<Result<Vec<_>>>()?.concat();
        Ok(view)
    }

    /// The rows of a workload, by its own name or by that of one of its pods.
    fn rows_of(&self, host: &Host) -> Result<Vec<GroupId>> {
        if let Host::Object { namespace, kind: None, name } = host
            && let Some(namespace) = self.loaded.snapshot.namespace_named(namespace)
        {
            let found = self.groups.named(namespace, name);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(vec![self.groups.of(self.loaded.world().workload(host)?)])
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups.len() as u32).map(GroupId)
    }

    pub(crate) fn shows(&self, from: GroupId, to: GroupId) -> bool {
        self.focus.is_empty() || self.focus.contains(&from) || self.focus.contains(&to)
    }

    pub(crate) fn shows_outside_of(&self, id: GroupId) -> bool {
        self.focus.is_empty() || self.focus.contains(&id)
    }

    /// What of it was asked for.
    pub(crate) fn narrow(&self, traffic: &Reachable) -> Reachable {
        let Some(TransportPort { protocol, port }) = self.port else { return traffic.clone() };
        let mut one = Traffic::none();
        one.insert(protocol, port, port);
        traffic.limit(&one)
    }

    pub(crate) fn open(&self, id: CellId) -> Reachable {
        self.narrow(&self.matrix.cell(id))
    }

    pub(crate) fn name(&self, id: GroupId) -> String {
        self.groups.name(&self.loaded.snapshot, id)
    }

    pub(crate) fn outside_to(&self, id: GroupId) -> Rc<[OutsideRange]> {
        self.matrix.outside_to(self.groups.get(id).example())
    }

    pub(crate) fn outside_from(&self, id: GroupId) -> Rc<[OutsideRange]> {
        self.groups.outside_from(&self.matrix, id)
    }

    /// The names that rules of the row speak of and open.
    pub(crate) fn names_to(&self, id: GroupId) -> Rc<[(DomainPattern, Reachable)]> {
        self.matrix.names_to(self.groups.get(id).example())
    }
}

/// A pattern of names for scripts: as it is written, and which names it matches (S5.1).
pub(crate) fn name_json(pattern: &DomainPattern) -> Value {
    let matches = match pattern {
        DomainPattern::Exact(_) => "exact",
        DomainPattern::Subdomains(_) => "subdomains",
        DomainPattern::OneLabel(_) => "one-label",
    };
    json!({ "pattern": pattern.written(), "matches": matches })
}

/// The first and last address as `ADDR-ADDR`, or a word where it is everything.
pub(crate) fn range_text(range: AddrRange) -> String {
    if range.first == range.last {
        return range.first.to_string();
    }
    match range.to_string().as_str() {
        "0.0.0.0-255.255.255.255" => "all of IPv4".to_owned(),
        "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" => "all of IPv6".to_owned(),
        other => other.to_owned(),
    }
}
