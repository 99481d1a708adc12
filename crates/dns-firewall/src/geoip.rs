//! `geoip`: where clients are, by databases in MaxMind's format. Facts have the names and texts of CoreDNS.

use crate::service::Block;
use maxminddb::geoip2::{Asn, City};
use maxminddb::{Reader, WithinOptions};
use namewall_corefile::GeoIp;
use namewall_dns::Asked;
use namewall_dns::wire::Edns;
use namewall_expression::Value;
use namewall_runtime::files::open_regular;
use rustc_hash::FxHashSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The option of EDNS0 with the client's network (RFC 7871).
const CLIENT_SUBNET: u16 = 8;
/// The largest database that is read: it is held in memory.
const MOST_BYTES: u64 = 1 << 30;

/// A database, read and checked.
#[derive(Debug)]
pub(crate) struct GeoDatabase {
    reader: Reader<Vec<u8>>,
    by_subnet: bool,
    schema: Schema,
}

/// Which facts a database has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Schema {
    /// `geoip/city/…`, `geoip/country/…` and the like.
    City,
    /// `geoip/asn/…`
    Asn,
}

impl Schema {
    /// By the type that a database says it has, as CoreDNS goes by it.
    fn of(kind: &str) -> Option<Self> {
        let has = |words: &[&str]| words.iter().any(|word| kind.contains(word));
        if has(&["ASN", "ISP"]) {
            Some(Self::Asn)
        } else if has(&["City", "Country", "Enterprise", "Location"]) {
            Some(Self::City)
        } else {
            None
        }
    }

    fn has(self, fact: &str) -> bool {
        fact.starts_with("geoip/asn/") == (self == Self::Asn)
    }
}

impl GeoDatabase {
    pub(crate) fn read(settings: &GeoIp) -> Result<Self, String> {
        let bytes = bytes_of(&settings.file).map_err(|error| error.to_string())?;
        Self::parse(bytes, settings.by_subnet)
    }

    fn parse(bytes: Vec<u8>, by_subnet: bool) -> Result<Self, String> {
        let reader = Reader::from_source(bytes).map_err(|error| error.to_string())?;
        let kind = &reader.metadata().database_type;
        let Some(schema) = Schema::of(kind) else {
            return Err(format!("a database of the type `{kind}` says nothing of cities, countries or networks (ASN)"));
        };
        let database = Self { reader, by_subnet, schema };
        database.check().map_err(|error| format!("the database is damaged: {error}"))?;
        Ok(database)
    }

    /// Reads every record once: what is damaged must not be found by a question, for which the facts would be missing.
    fn check(&self) -> Result<(), maxminddb::MaxMindDbError> {
        let mut seen = FxHashSet::default();
        for found in self.reader.networks(WithinOptions::default())? {
            let found = found?;
            if found.offset().is_none_or(|offset| !seen.insert(offset)) {
                continue;
            }
            match self.schema {
                Schema::City => _ = found.decode::<City<'_>>()?,
                Schema::Asn => _ = found.decode::<Asn<'_>>()?,
            }
        }
        Ok(())
    }

    /// Whether it can set a fact.
    pub(crate) fn has(&self, fact: &str) -> bool {
        self.schema.has(fact)
    }

    /// The text of a fact for who asks.
    pub(crate) fn text(&self, fact: &str, asked: &Asked<'_>) -> Option<String> {
        let subnet = if self.by_subnet { subnet_of(asked.query) } else { None };
        let found = self.reader.lookup(subnet.unwrap_or(asked.client.ip().to_canonical())).ok()?;
        let text = match self.schema {
            Schema::City => city_text(&found.decode().ok()?.unwrap_or_default(), fact)?,
            Schema::Asn => {
                let nobody = Asn { autonomous_system_number: None, autonomous_system_organization: None };
                let asn = found.decode::<Asn<'_>>().ok()?.unwrap_or(nobody);
                match fact {
                    "geoip/asn/number" => asn.autonomous_system_number.unwrap_or_default().to_string(),
                    "geoip/asn/org" => asn.autonomous_system_organization.unwrap_or_default().to_owned(),
                    _ => return None,
                }
            }
        };
        Some(text)
    }
}

impl Block {
    /// The value of a fact of `geoip`, for who asks.
    pub(crate) fn geoip_text(&self, fact: &str, asked: &Asked<'_>) -> Value<'static> {
        let database = self.geoip.iter().find(|database| database.has(fact));
        let text = database.and_then(|database| database.text(fact, asked));
        text.map_or(Value::UNSET, |text| Value::Text(text.into()))
    }
}

fn city_text(city: &City<'_>, fact: &str) -> Option<String> {
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    let text = match fact {
        "geoip/city/name" => city.city.names.english,
        "geoip/country/code" => city.country.iso_code,
        "geoip/country/name" => city.country.names.english,
        "geoip/continent/code" => city.continent.code,
        "geoip/continent/name" => city.continent.names.english,
        "geoip/timezone" => city.location.time_zone,
        "geoip/postalcode" => city.postal.code,
        "geoip/latitude" => return Some(number(city.location.latitude)),
        "geoip/longitude" => return Some(number(city.location.longitude)),
        "geoip/country/is_in_european_union" => {
            return Some(city.country.is_in_european_union.unwrap_or_default().to_string());
        }
        "geoip/subdivisions/code" => {
            let codes: Vec<&str> = city.subdivisions.iter().map(|one| one.iso_code.unwrap_or_default()).collect();
            return Some(codes.join(","));
        }
        _ => return None,
    };
    Some(text.unwrap_or_default().to_owned())
}

/// The address of the client subnet option. None if there is none, or it is no address.
fn subnet_of(query: &[u8]) -> Option<IpAddr> {
    let edns = Edns::read(query)?;
    let (_, data) = edns.options().find(|(code, _)| *code == CLIENT_SUBNET)?;
    let (head, address) = data.split_at_checked(4)?;
    match head[..2] {
        [0, 1] => Some(Ipv4Addr::from(padded::<4>(address)?).into()),
        [0, 2] => Some(Ipv6Addr::from(padded::<16>(address)?).into()),
        _ => None,
    }
}

/// Bytes that are not written are zeros.
fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut all = [0; N];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(all)
}

fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(std::io::Error::other("it is larger than 1 GiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
