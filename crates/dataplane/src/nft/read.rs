//! Reading a table back from the kernel.

// What is read back may be of another program, or of another version: it must not make this code panic.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::batch::{cut_comment, fixed, read_comment};
use super::change::ExistingTable;
use super::elements::Elements;
use super::expression::Expression;
use super::rule::Rule;
use super::set::{Element, Field, Holds, Key, LEASE, LeaseNote, SetSpec, Value, Version, read_address};
use super::table::{Chain, Fallback, Hook, HookKind, Point, TableFamily, TableRef};
use super::wire::{self, SUBSYSTEM, chain, data, element, message, object, rule, set, table};
use crate::Count;
use crate::leases::Found;
use crate::netlink::{Attributes, DUMP, Error, Family, Messages, Received, Socket};
use nix::errno::Errno;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const FIXED: usize = 4;

/// A table as the kernel has it.
#[derive(Default, Debug)]
pub(crate) struct Live {
    pub(crate) chains: BTreeMap<String, LiveChain>,
    pub(crate) sets: BTreeMap<String, LiveSet>,
    /// Counters that elements lead to.
    pub(crate) counters: BTreeMap<String, LiveCounter>,
}

#[derive(Debug)]
pub(crate) struct LiveCounter {
    pub(crate) comment: Option<String>,
    pub(crate) count: Count,
}

#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct LiveChain {
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<LiveRule>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LiveRule {
    pub(crate) expressions: Vec<Expression>,
    pub(crate) comment: Option<String>,
    pub(crate) count: Option<Count>,
}

#[derive(Debug)]
pub(crate) struct LiveSet {
    /// None if it is of no form of ours.
    pub(crate) spec: Option<SetSpec>,
    pub(crate) elements: Elements,
}

impl ExistingTable for Live {
    fn chains(&self) -> BTreeSet<&str> {
        self.chains.keys().map(String::as_str).collect()
    }

    fn has_chain(&self, name: &str, chain: &Chain) -> bool {
        self.chains.get(name).is_some_and(|live| live.is(chain))
    }

    fn has_other_hook(&self, name: &str, chain: &Chain) -> bool {
        self.chains.get(name).is_some_and(|live| live.hook != chain.hook)
    }

    fn sets(&self) -> BTreeSet<&str> {
        self.sets.keys().map(String::as_str).collect()
    }

    fn counters(&self) -> BTreeSet<&str> {
        self.counters.keys().map(String::as_str).collect()
    }

    fn spec(&self, name: &str) -> Option<&SetSpec> {
        self.sets.get(name)?.spec.as_ref()
    }

    fn elements(&self, name: &str) -> Option<&Elements> {
        self.sets.get(name).map(|set| &set.elements)
    }
}

impl LiveChain {
    fn is(&self, chain: &Chain) -> bool {
        self.hook == chain.hook && self.has_rules(&chain.rules)
    }

    pub(crate) fn has_rules(&self, rules: &[Rule]) -> bool {
        let same = |(live, meant): (&LiveRule, &Rule)| {
            live.comment.as_deref() == meant.comment.as_deref().map(cut_comment)
                && live.expressions == meant.expressions()
        };
        self.rules.len() == rules.len() && self.rules.iter().zip(rules).all(same)
    }
}

fn request(family: TableFamily, message: u16, flags: u16) -> Messages {
    let mut messages = Messages::new();
    messages.begin(SUBSYSTEM << 8 | message, flags, &fixed(family as u8, 0));
    messages
}

/// What the table says of itself. None if there is no such table.
pub(crate) fn table_note<'t>(socket: &mut Socket, table: impl Into<TableRef<'t>>) -> Result<Option<String>, Error> {
    let note = |attributes: Attributes<'_>| attributes.get(table::USERDATA).and_then(read_comment).map(str::to_owned);
    Ok(table_about(socket, table.into(), note)?.map(Option::unwrap_or_default))
}

/// The port of the socket that owns the table. None if it has no owner, or does not exist.
pub(crate) fn table_owner(socket: &mut Socket, table: TableRef<'_>) -> Result<Option<u32>, Error> {
    Ok(table_about(socket, table, |attributes| attributes.u32(table::OWNER_PORT))?.flatten())
}

fn table_about<T>(
    socket: &mut Socket,
    TableRef { family, name }: TableRef<'_>,
    read: impl Fn(Attributes<'_>) -> Option<T>,
) -> Result<Option<Option<T>>, Error> {
    let mut asked = request(family, message::GET_TABLE, 0);
    asked.text(table::NAME, name);
    asked.acknowledge();
    let mut about = None;
    match socket.commit_echoed(&asked, |answer| about = read(answer.attributes(FIXED))) {
        Ok(()) => Ok(Some(about)),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The whole table; tried again while others change theirs.
pub(crate) fn read<'t>(socket: &mut Socket, table: impl Into<TableRef<'t>>) -> Result<Live, Error> {
    let table = table.into();
    again(|| {
        let mut live = Live::default();
        read_chains(socket, table, &mut live)?;
        read_rules(socket, table, None, &mut live)?;
        read_counters(socket, table, &mut live)?;
        read_sets(socket, table, &mut live)?;
        for (set, content) in &mut live.sets {
            // Leases are many, and not compared.
            if !content.spec.as_ref().is_some_and(|spec| spec.timeout) {
                content.elements = read_elements(socket, table, set)?;
            }
        }
        Ok(live)
    })
}

/// Chains, rules and counters, without sets.
pub(crate) fn read_chains_and_rules<'t>(socket: &mut Socket, table: impl Into<TableRef<'t>>) -> Result<Live, Error> {
    let table = table.into();
    again(|| {
        let mut live = Live::default();
        read_chains(socket, table, &mut live)?;
        read_rules(socket, table, None, &mut live)?;
        read_counters(socket, table, &mut live)?;
        Ok(live)
    })
}

/// More leases than this are not read: the kernel takes a minute for a million.
const LEASES_READ: usize = 100_000;

/// How often a list of leases is read that the kernel has mixed up.
const LISTS: usize = 10;
const BETWEEN_LISTS: Duration = Duration::from_millis(10);

/// The leases there are, with the time each has left.
///
/// The kernel gives a list in parts, each by how many elements came before. If it makes the set's hash table larger
/// between two parts, their order changes: some come twice, and as many are missing. Then the list is read again.
pub(crate) fn read_leases(table: &str) -> Result<Vec<Found>, Error> {
    let mut leases = FxHashMap::default();
    for set in [LEASE.0, LEASE.1] {
        for _ in 0..LISTS {
            let list = list_leases(&SetRef { table, set }, LEASES_READ.saturating_sub(leases.len()))?;
            let mut listed = FxHashSet::default();
            let is_whole = list.iter().all(|one| listed.insert((one.group, one.address)));
            leases.extend(list.into_iter().map(|one| ((one.group, one.address), one)));
            if is_whole {
                break;
            }
            std::thread::sleep(BETWEEN_LISTS);
        }
    }
    Ok(leases.into_values().collect())
}

/// On a socket of its own, which is closed where there are too many to read them all.
fn list_leases(&SetRef { table, set }: &SetRef<'_>, at_most: usize) -> Result<Vec<Found>, Error> {
    let mut leases = Vec::new();
    let mut socket = Socket::open(Family::NetlinkNetFilter)?;
    let mut asked = request(TableFamily::Inet, message::GET_ELEMENT, DUMP);
    asked.text(element::TABLE, table);
    asked.text(element::SET, set);
    let read = socket.dump_while(&asked, |answer| {
        for (_, one) in answer.attributes(FIXED).nested(element::ELEMENTS) {
            leases.extend(read_lease(Attributes(one)));
        }
        leases.len() < at_most
    });
    match read {
        // A set that is being changed is one that is in use; what was read is good.
        Ok(()) | Err(Error::Interrupted) => Ok(leases),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(leases),
        Err(error) => Err(error),
    }
}

/// The keys of a set, as far as they matter; none if there is no such set.
pub(crate) fn read_keys(table: &str, set: &str, at_most: usize) -> Result<Vec<Vec<u8>>, Error> {
    read_keys_at(&mut Socket::open(Family::NetlinkNetFilter)?, &SetRef { table, set }, at_most)
}

/// A set of a table.
pub(crate) struct SetRef<'a> {
    pub(crate) table: &'a str,
    pub(crate) set: &'a str,
}

/// The same through a socket that may be of another network namespace. If there are more, it is of no more use.
pub(crate) fn read_keys_at(
    socket: &mut Socket,
    &SetRef { table, set }: &SetRef<'_>,
    at_most: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut asked = request(TableFamily::Inet, message::GET_ELEMENT, DUMP);
    asked.text(element::TABLE, table);
    asked.text(element::SET, set);
    let mut keys = Vec::new();
    let read = socket.dump_while(&asked, |answer| {
        for (_, one) in answer.attributes(FIXED).nested(element::ELEMENTS) {
            keys.extend(Attributes(one).nested(element::KEY).get(data::VALUE).map(<[u8]>::to_vec));
        }
        keys.len() < at_most
    });
    match read {
        Ok(()) | Err(Error::Interrupted) => Ok(keys),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read_lease(of: Attributes<'_>) -> Option<Found> {
    let key = of.nested(element::KEY).get(data::VALUE)?;
    let ([a, b, c, d, e, f, g, h], address) = key.split_first_chunk::<8>()?;
    let number = |bytes| u64::from(u32::from_ne_bytes(bytes));
    let group = number([*a, *b, *c, *d]) << 32 | number([*e, *f, *g, *h]);
    let left = of.u64(element::EXPIRATION).or(of.u64(element::TIMEOUT))?;
    let address = read_address(address)?;
    let note = of.get(element::USERDATA).and_then(read_comment).and_then(LeaseNote::read);
    Some(Found { group, address, left: Duration::from_millis(left), note })
}

/// Whether a set has these elements, with what they map to.
pub(crate) fn has_elements<'t>(
    socket: &mut Socket,
    table: impl Into<TableRef<'t>>,
    set: &str,
    elements: &[Element],
) -> Result<bool, Error> {
    let TableRef { family, name } = table.into();
    let mut asked = request(family, message::GET_ELEMENT, 0);
    asked.text(element::TABLE, name);
    asked.text(element::SET, set);
    asked.nested(element::ELEMENTS, |out| {
        for element in elements {
            element.without_value().write(out, None);
        }
    });
    asked.acknowledge();
    let mut found = Vec::new();
    let answered = socket.commit_echoed(&asked, |answer| {
        for (_, one) in answer.attributes(FIXED).nested(element::ELEMENTS) {
            found.extend(read_element(Attributes(one)));
        }
    });
    match answered {
        Ok(()) => Ok(elements
            .iter()
            .all(|element| found.iter().any(|one| one.key == element.key && one.value == element.value))),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Only these chains.
pub(crate) fn read_chain_rules<'t>(
    socket: &mut Socket,
    table: impl Into<TableRef<'t>>,
    chains: &[&str],
) -> Result<Live, Error> {
    let table = table.into();
    again(|| {
        let mut live = Live::default();
        for chain in chains {
            live.chains.insert((*chain).to_owned(), LiveChain::default());
            read_rules(socket, table, Some(chain), &mut live)?;
        }
        Ok(live)
    })
}

const TRIES: usize = 20;

fn again<T>(mut read: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..TRIES {
        match read() {
            Err(Error::Interrupted) => {}
            result => return result,
        }
    }
    read()
}

fn read_chains(socket: &mut Socket, table: TableRef<'_>, live: &mut Live) -> Result<(), Error> {
    socket.dump(&request(table.family, message::GET_CHAIN, DUMP), |answer| {
        let attributes = answer.attributes(FIXED);
        if !is_of(table, &answer, chain::TABLE) {
            return;
        }
        if let Some(chain_name) = attributes.text(chain::NAME) {
            let hook = read_hook(table.family, attributes);
            live.chains.insert(chain_name.to_owned(), LiveChain { hook, rules: Vec::new() });
        }
    })
}

/// Whether an answer is about this table: a dump has those of all tables.
fn is_of(table: TableRef<'_>, answer: &Received<'_>, attribute: u16) -> bool {
    answer.body.first() == Some(&(table.family as u8)) && answer.attributes(FIXED).text(attribute) == Some(table.name)
}

fn read_hook(family: TableFamily, of: Attributes<'_>) -> Option<Hook> {
    let hook = of.nested(chain::HOOK);
    let point = Point::numbered(family, hook.u32(chain::HOOK_NUMBER)?)?;
    // An interface that is gone is no longer named.
    let device = hook.text(chain::HOOK_DEVICE).map(str::to_owned);
    let kind = if of.text(chain::TYPE) == Some("nat") { HookKind::Nat } else { HookKind::Filter };
    let fallback = if of.u32(chain::POLICY) == Some(0) { Fallback::Drop } else { Fallback::Accept };
    Some(Hook { point, device, priority: hook.u32(chain::HOOK_PRIORITY)? as i32, kind, fallback })
}

fn read_rules(socket: &mut Socket, table: TableRef<'_>, only: Option<&str>, live: &mut Live) -> Result<(), Error> {
    let mut asked = request(table.family, message::GET_RULE, DUMP);
    asked.text(rule::TABLE, table.name);
    if let Some(chain) = only {
        asked.text(rule::CHAIN, chain);
    }
    socket.dump(&asked, |answer| {
        let attributes = answer.attributes(FIXED);
        if !is_of(table, &answer, rule::TABLE) {
            return;
        }
        let Some(chain) = attributes.text(rule::CHAIN).and_then(|chain| live.chains.get_mut(chain)) else { return };
        let expressions = attributes.nested(rule::EXPRESSIONS);
        chain.rules.push(LiveRule {
            expressions: expressions.map(|(_, expression)| Expression::read(Attributes(expression))).collect(),
            comment: attributes.get(rule::USERDATA).and_then(read_comment).map(str::to_owned),
            count: expressions.filter_map(|(_, expression)| read_count(Attributes(expression))).next(),
        });
    })
}

fn read_count(expression: Attributes<'_>) -> Option<Count> {
    let counter = (expression.text(1) == Some("counter")).then(|| expression.nested(2))?;
    Some(Count { bytes: counter.u64(1)?, packets: counter.u64(2)? })
}

fn read_counters(socket: &mut Socket, table: TableRef<'_>, live: &mut Live) -> Result<(), Error> {
    let mut asked = request(table.family, message::GET_OBJECT, DUMP);
    asked.text(object::TABLE, table.name);
    asked.u32(object::TYPE, object::COUNTER);
    socket.dump(&asked, |answer| {
        let attributes = answer.attributes(FIXED);
        if !is_of(table, &answer, object::TABLE) {
            return;
        }
        if let Some(name) = attributes.text(object::NAME) {
            let counted = attributes.nested(object::DATA);
            let number = |kind| counted.u64(kind).unwrap_or_default();
            let (bytes, packets) = (number(object::COUNTER_BYTES), number(object::COUNTER_PACKETS));
            let comment = attributes.get(object::USERDATA).and_then(read_comment).map(str::to_owned);
            live.counters.insert(name.to_owned(), LiveCounter { comment, count: Count { packets, bytes } });
        }
    })
}

fn read_sets(socket: &mut Socket, table: TableRef<'_>, live: &mut Live) -> Result<(), Error> {
    let mut asked = request(table.family, message::GET_SET, DUMP);
    asked.text(set::TABLE, table.name);
    socket.dump(&asked, |answer| {
        let attributes = answer.attributes(FIXED);
        if !is_of(table, &answer, set::TABLE) {
            return;
        }
        if let Some(set_name) = attributes.text(set::NAME) {
            let spec = read_spec(set_name, attributes);
            live.sets.insert(set_name.to_owned(), LiveSet { spec, elements: Elements::default() });
        }
    })
}

fn read_spec(name: &str, of: Attributes<'_>) -> Option<SetSpec> {
    let flags = of.u32(set::FLAGS).unwrap_or(0);
    let mut key = Vec::new();
    let mut types = of.u32(set::KEY_TYPE)?;
    while types != 0 {
        key.insert(
            0,
            match types & 0x3f {
                19 => Field::Number,
                7 => Field::Address(Version::V4),
                8 => Field::Address(Version::V6),
                12 => Field::Protocol,
                13 => Field::Port,
                2 => Field::Family,
                20 => Field::Interface,
                _ => return None,
            },
        );
        types >>= 6;
    }
    let holds = match (flags & set::MAP != 0, of.u32(set::DATA_TYPE)) {
        (false, _) if flags & set::OBJECTS != 0 => match of.u32(set::OBJECT_TYPE) {
            Some(object::COUNTER) => Holds::Counters,
            _ => return None,
        },
        (false, _) => Holds::Keys,
        (true, Some(set::VERDICT)) => Holds::Verdicts,
        _ => return None,
    };
    let (interval, timeout) = (flags & set::INTERVAL != 0, flags & set::TIMEOUT != 0);
    Some(SetSpec { name: name.to_owned(), key, holds, interval, timeout })
}

fn read_elements(socket: &mut Socket, TableRef { family, name }: TableRef<'_>, set: &str) -> Result<Elements, Error> {
    let mut asked = request(family, message::GET_ELEMENT, DUMP);
    asked.text(element::TABLE, name);
    asked.text(element::SET, set);
    let mut elements = Elements::default();
    socket.dump(&asked, |answer| {
        for (_, one) in answer.attributes(FIXED).nested(element::ELEMENTS) {
            if let Some(element) = read_element(Attributes(one)) {
                elements.insert(element);
            }
        }
    })?;
    Ok(elements)
}

fn read_element(of: Attributes<'_>) -> Option<Element> {
    let value_of = |kind| of.nested(kind).get(data::VALUE);
    let value = match (value_of(element::DATA), of.nested(element::DATA).get(data::VERDICT)) {
        // No map of ours has values.
        (Some(_), _) => return None,
        (None, Some(verdict)) => {
            Value::goto(Attributes(verdict).text(data::VERDICT_CHAIN).unwrap_or_default().to_owned())
        }
        (None, None) => of.text(element::OBJECT).map_or(Value::None, |name| Value::counter(name.to_owned())),
    };
    Some(Element {
        key: Key::from_bytes(value_of(element::KEY)?)?,
        key_end: value_of(element::KEY_END).and_then(Key::from_bytes).map(Box::new),
        ends_interval: of.u32(element::FLAGS).unwrap_or(0) & wire::element::INTERVAL_END != 0,
        value,
    })
}
