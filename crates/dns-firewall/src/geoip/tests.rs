//! Databases that a test makes, and damaged ones.

use super::*;
use namewall_dns::Transport;
use namewall_testbed::Mmdb;
use serde_json::json;
use std::net::SocketAddr;

fn cities() -> Vec<u8> {
    let city = json!({
        "city": {"names": {"en": "Cambridge", "de": "Kämbritsch"}},
        "country": {"iso_code": "GB", "is_in_european_union": false, "names": {"en": "United Kingdom"}},
        "continent": {"code": "EU", "names": {"en": "Europe"}},
        "location": {"latitude": 52.2242, "longitude": 0.1315, "time_zone": "Europe/London"},
        "postal": {"code": "CB4"},
        "subdivisions": [{"iso_code": "ENG"}, {"iso_code": "CAM"}],
    });
    let country = json!({"country": {"iso_code": "DE", "is_in_european_union": true, "names": {"en": "Germany"}}});
    Mmdb::new("GeoLite2-City")
        .with("81.2.69.0".parse().unwrap(), 24, &city)
        .with("2001:db8:7::".parse().unwrap(), 48, &country)
        .bytes()
}

fn networks() -> Vec<u8> {
    let record = json!({"autonomous_system_number": 64_500, "autonomous_system_organization": "Example Net"});
    Mmdb::new("GeoLite2-ASN").with("81.2.0.0".parse().unwrap(), 16, &record).bytes()
}

/// A query with a client subnet option of these bytes.
fn query(subnet: &[u8]) -> Vec<u8> {
    let mut query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0".to_vec();
    query.extend((subnet.len() as u16 + 4).to_be_bytes());
    query.extend([0, 8]);
    query.extend((subnet.len() as u16).to_be_bytes());
    query.extend(subnet);
    query
}

fn fact(database: &GeoDatabase, fact: &str, client: &str, query: &[u8]) -> Option<String> {
    let client = SocketAddr::new(client.parse().unwrap(), 4_000);
    let server = SocketAddr::from(([127, 0, 0, 1], 53));
    database.text(fact, &Asked { query, client, server, transport: Transport::Udp })
}

#[test]
fn facts_have_the_names_and_texts_of_coredns() {
    let database = GeoDatabase::parse(cities(), false).unwrap();
    for (name, here, elsewhere) in [
        ("geoip/city/name", "Cambridge", ""),
        ("geoip/country/code", "GB", "DE"),
        ("geoip/country/name", "United Kingdom", "Germany"),
        ("geoip/country/is_in_european_union", "false", "true"),
        ("geoip/continent/code", "EU", ""),
        ("geoip/continent/name", "Europe", ""),
        ("geoip/subdivisions/code", "ENG,CAM", ""),
        ("geoip/latitude", "52.2242", ""),
        ("geoip/longitude", "0.1315", ""),
        ("geoip/timezone", "Europe/London", ""),
        ("geoip/postalcode", "CB4", ""),
    ] {
        assert!(database.has(name) && namewall_corefile::OF_GEOIP.contains(&name));
        assert_eq!(fact(&database, name, "81.2.69.7", &query(&[])).as_deref(), Some(here), "{name}");
        assert_eq!(fact(&database, name, "::ffff:81.2.69.7", &query(&[])).as_deref(), Some(here), "{name}");
        assert_eq!(fact(&database, name, "2001:db8:7::1", &query(&[])).as_deref(), Some(elsewhere), "{name}");
        let unknown = if name.ends_with("union") { "false" } else { "" };
        assert_eq!(fact(&database, name, "192.0.2.1", &query(&[])).as_deref(), Some(unknown), "{name}");
    }
    assert!(!database.has("geoip/asn/number"));
    let database = GeoDatabase::parse(networks(), false).unwrap();
    assert_eq!(fact(&database, "geoip/asn/number", "81.2.3.4", &query(&[])).as_deref(), Some("64500"));
    assert_eq!(fact(&database, "geoip/asn/org", "81.2.3.4", &query(&[])).as_deref(), Some("Example Net"));
    assert_eq!(fact(&database, "geoip/asn/number", "192.0.2.1", &query(&[])).as_deref(), Some("0"));
    assert!(!database.has("geoip/city/name"));
}

#[test]
fn the_subnet_of_a_query_counts_where_it_is_said() {
    let ask = |by_subnet, subnet: &[u8]| {
        let database = GeoDatabase::parse(cities(), by_subnet).unwrap();
        fact(&database, "geoip/country/code", "2001:db8:7::1", &query(subnet)).unwrap()
    };
    let cambridge = [0, 1, 24, 0, 81, 2, 69];
    assert_eq!(ask(true, &cambridge), "GB");
    assert_eq!(ask(false, &cambridge), "DE");
    assert_eq!(ask(true, &[0, 2, 48, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 8]), "");
    // What is no address changes nothing.
    for broken in [&[0, 1, 24][..], &[0, 3, 24, 0, 1, 2, 3], &[0, 1, 40, 0, 1, 2, 3, 4, 5]] {
        assert_eq!(ask(true, broken), "DE", "{broken:?}");
    }
}

#[test]
fn a_damaged_database_is_refused_and_never_a_panic() {
    let whole = cities();
    assert!(GeoDatabase::parse(Vec::new(), false).is_err());
    let other = Mmdb::new("GeoIP2-Domain").bytes();
    assert!(GeoDatabase::parse(other, false).unwrap_err().contains("GeoIP2-Domain"));
    // The file is cut, or a byte of it is another: it is refused, or every record can be read.
    for end in 0..whole.len() {
        assert!(GeoDatabase::parse(whole[..end].to_vec(), false).is_err(), "cut at {end}");
    }
    let mut refused = 0;
    for at in 0..whole.len() {
        for value in [0, 0xff, whole[at] ^ 0x20] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            match GeoDatabase::parse(bytes, false) {
                Ok(database) => _ = fact(&database, "geoip/city/name", "81.2.69.7", &query(&[])),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > whole.len() / 4, "{refused} of {}", whole.len() * 3);
}
