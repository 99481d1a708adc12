//! `geoip DBFILE { edns-subnet }`: where clients are, by a database of addresses.

use crate::FileSpan;
use crate::form::{Form, Words, many, once};
use crate::parse::Line;
use crate::problem::Report;
use std::path::PathBuf;

pub(crate) const GEOIP: Form = many("geoip", "DBFILE { edns-subnet }", 1, 1);

const OPTIONS: Words<()> = Words { served: &[((), once("edns-subnet", "", 0, 0))], not_served: &[] };

/// A database of addresses, in MaxMind's format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GeoIp {
    pub file: PathBuf,
    /// Whether the address is that of the client subnet option (RFC 7871), where a query has one.
    pub by_subnet: bool,
    pub place: FileSpan,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> GeoIp {
    let by_subnet = !report.options(line, &OPTIONS).is_empty();
    GeoIp { file: PathBuf::from(&*line.args[0].text), by_subnet, place: line.place().clone() }
}
