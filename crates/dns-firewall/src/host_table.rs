//! Names and their addresses in little memory: a hosts file of a million names takes some 70 MB. Names and addresses
//! have numbers, and rows of numbers say which belong together.

use namewall_zones::{Full, NameTable};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;

/// Names by address, and addresses by name.
#[derive(Debug, Default)]
pub(crate) struct HostTable {
    names: NameTable,
    /// In order.
    addresses: Vec<IpAddr>,
    of_names: Rows,
    of_addresses: Rows,
}

/// What is read so far.
#[derive(Debug, Default)]
pub(crate) struct HostTableBuilder {
    names: NameTable,
    addresses: FxHashMap<IpAddr, u32>,
    /// The number of a name and of its address, in the order of the file, each pair once.
    pairs: Vec<[u32; 2]>,
    seen: FxHashSet<[u32; 2]>,
}

impl HostTableBuilder {
    /// Adds a name, which is on the wire and in lower case.
    pub(crate) fn add(&mut self, address: IpAddr, name: &[u8]) -> Result<(), Full> {
        let (name, _) = self.names.insert(name)?;
        let next = u32::try_from(self.addresses.len()).map_err(|_| Full)?;
        let address = *self.addresses.entry(address).or_insert(next);
        if self.seen.insert([name, address]) {
            self.pairs.push([name, address]);
        }
        Ok(())
    }

    pub(crate) fn finish(self, has_reverse: bool) -> HostTable {
        let Self { mut names, addresses, mut pairs, seen } = self;
        drop(seen);
        names.shrink();
        let mut sorted: Vec<(IpAddr, u32)> = addresses.into_iter().collect();
        sorted.sort_unstable();
        let mut places = vec![0; sorted.len()];
        for (place, (_, number)) in (0..).zip(&sorted) {
            places[*number as usize] = place;
        }
        for pair in &mut pairs {
            pair[1] = places[pair[1] as usize];
        }
        let of_addresses = match has_reverse {
            true => Rows::new(pairs.iter().map(|[name, address]| [*address, *name]), sorted.len()),
            false => Rows::default(),
        };
        let of_names = Rows::new(pairs.iter().copied(), names.len());
        HostTable { names, addresses: sorted.into_iter().map(|(address, _)| address).collect(), of_names, of_addresses }
    }
}

impl HostTable {
    /// The addresses of a name, in the order of the file; none if the name is not there.
    pub(crate) fn addresses(&self, name: &[u8]) -> Option<impl Iterator<Item = IpAddr> + '_> {
        let id = self.names.get(name)?;
        let row = self.of_names.row(id as usize);
        Some(row.iter().filter_map(|address| self.addresses.get(*address as usize).copied()))
    }

    /// The names of an address, in the order of the file.
    pub(crate) fn names(&self, address: IpAddr) -> impl Iterator<Item = &[u8]> {
        let at = self.addresses.binary_search(&address).ok();
        let row = at.map_or(&[][..], |at| self.of_addresses.row(at));
        row.iter().map(|name| self.names.name(*name))
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let rows = |rows: &Rows| (rows.starts.capacity() + rows.values.capacity()) * size_of::<u32>();
        let addresses = self.addresses.capacity() * size_of::<IpAddr>();
        self.names.bytes() + addresses + rows(&self.of_names) + rows(&self.of_addresses)
    }
}

/// A row of numbers for each number.
#[derive(Debug, Default)]
struct Rows {
    /// Where each row begins, and where the last one ends.
    starts: Vec<u32>,
    values: Vec<u32>,
}

impl Rows {
    /// Sorts values by their keys, which are below a count; those of one key keep their order.
    fn new(pairs: impl Iterator<Item = [u32; 2]> + Clone, count: usize) -> Self {
        let mut starts = vec![0_u32; count + 1];
        pairs.clone().for_each(|[key, _]| starts[key as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut values = vec![0; starts.last().map_or(0, |end| *end as usize)];
        let mut next = starts.clone();
        for [key, value] in pairs {
            let place = &mut next[key as usize];
            values[*place as usize] = value;
            *place += 1;
        }
        Self { starts, values }
    }

    fn row(&self, key: usize) -> &[u32] {
        let range = self.starts.get(key).zip(self.starts.get(key + 1));
        range.and_then(|(start, end)| self.values.get(*start as usize..*end as usize)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_keep_their_order() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut builder = HostTableBuilder::default();
        for (text, name) in [
            ("192.0.2.2", &b"\x01a\0"[..]),
            ("192.0.2.1", b"\x01a\0"),
            ("192.0.2.2", b"\x01b\0"),
            ("192.0.2.2", b"\x01a\0"),
            ("2001:db8::1", b"\x01c\0"),
        ] {
            builder.add(address(text), name).expect("there is room");
        }
        let table = builder.finish(true);
        let addresses = |name: &'static [u8]| table.addresses(name).map(Iterator::collect::<Vec<_>>);
        assert_eq!(addresses(b"\x01a\0"), Some(vec![address("192.0.2.2"), address("192.0.2.1")]));
        assert_eq!(addresses(b"\x01c\0"), Some(vec![address("2001:db8::1")]));
        assert_eq!(addresses(b"\x01d\0"), None);
        assert_eq!(table.names(address("192.0.2.2")).collect::<Vec<_>>(), [b"\x01a\0", b"\x01b\0"]);
        assert_eq!(table.names(address("192.0.2.9")).count(), 0);
    }

    /// A million names have at most 100 MB; this is a hundredth of them.
    #[test]
    fn a_name_takes_less_than_a_hundred_bytes() {
        let mut builder = HostTableBuilder::default();
        for number in 0..10_000 {
            let name = format!("\x09host{number:05}\x08tracking\x07example\0");
            builder.add(IpAddr::from([0, 0, 0, 0]), name.as_bytes()).expect("there is room");
        }
        let bytes = builder.finish(true).bytes();
        assert!(bytes < 10_000 * 100, "{bytes} bytes");
    }
}
