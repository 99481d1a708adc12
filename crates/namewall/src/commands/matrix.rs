//! `namewall matrix`.

use crate::cli::{Matrix as Args, MatrixFormat};
use crate::input::{Loaded, Origin};
use crate::output;
use crate::picture::{self, Picture};
use anyhow::Result;
use namewall_policy::model::WorkloadId;
use namewall_policy::port::{Protocol, Traffic};
use namewall_policy::reach::{CellId, Matrix};
use std::io::{self, Write};
use std::process::ExitCode;

mod exposure;
mod rows;
mod text;

pub(crate) fn run<I: Origin>(args: &Args<I>) -> Result<ExitCode> {
    let loaded = args.input.load()?;
    loaded.report_errors();
    if args.exposure {
        return exposure::run(args, &loaded);
    }
    let focus = args.focus.iter().map(|host| loaded.world().workload(host)).collect::<Result<Vec<_>, _>>()?;
    let view = View {
        loaded: &loaded,
        matrix: loaded.matrix(),
        focus,
        port: args.port.map(|filter| (filter.protocol, filter.port)),
    };
    let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout());
    match args.output {
        MatrixFormat::Text => text::print(&mut output::stdout(), &view)?,
        MatrixFormat::Json => rows::print_json(&mut out, &view)?,
        MatrixFormat::Json2 => loaded.unread.wrap(&mut out, "pairs", |out| rows::print_json(out, &view))?,
        MatrixFormat::Csv => rows::print_csv(&mut out, &view)?,
        MatrixFormat::Md => rows::print_markdown(&mut out, &view)?,
        MatrixFormat::Dot => picture::print_dot(&mut out, &Picture::new(&view)?)?,
        MatrixFormat::Svg => picture::print_svg(&mut out, &Picture::new(&view)?)?,
        MatrixFormat::Html => picture::print_html(&mut out, &Picture::new(&view)?)?,
    }
    out.flush()?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

/// A matrix as asked for: with a focus, for a port.
pub(crate) struct View<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) matrix: Matrix<'a>,
    focus: Vec<WorkloadId>,
    port: Option<(Protocol, u16)>,
}

impl View<'_> {
    pub(crate) fn workloads(&self) -> impl Iterator<Item = WorkloadId> + use<> {
        self.loaded.snapshot.workload_ids()
    }

    pub(crate) fn shows(&self, from: WorkloadId, to: WorkloadId) -> bool {
        self.focus.is_empty() || self.focus.contains(&from) || self.focus.contains(&to)
    }

    pub(crate) fn shows_outside_of(&self, id: WorkloadId) -> bool {
        self.focus.is_empty() || self.focus.contains(&id)
    }

    /// What of it was asked for.
    pub(crate) fn narrow(&self, traffic: &Traffic) -> Traffic {
        let Some((protocol, port)) = self.port else { return traffic.clone() };
        let mut one = Traffic::none();
        one.insert(protocol, port, port);
        traffic.intersect(&one)
    }

    pub(crate) fn open(&self, id: CellId) -> Traffic {
        self.narrow(&self.matrix.cell(id).open)
    }

    pub(crate) fn name(&self, id: WorkloadId) -> String {
        self.loaded.snapshot.workload_name(id)
    }
}

/// The first and last address as `ADDR-ADDR`, or a word where it is everything.
pub(crate) fn range_text(range: namewall_policy::addr::AddrRange) -> String {
    if range.first == range.last {
        return range.first.to_string();
    }
    match range.to_string().as_str() {
        "0.0.0.0-255.255.255.255" => "all of IPv4".to_owned(),
        "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" => "all of IPv6".to_owned(),
        other => other.to_owned(),
    }
}
