//! A zone transfer as it comes in: AXFR (RFC 5936), or IXFR (RFC 1995) from the version that is there.

use super::zone::{PolicyBounds, PolicyBuilder, PolicyZone, timers};
use crate::name::lower;
use crate::record::{Record, SOA};
use rustc_hash::{FxHashMap, FxHashSet};

/// Records of changes that are taken, at most: who sends more should send the whole zone.
const MOST_CHANGED: usize = 1_000_000;

/// What a transfer says.
#[derive(Debug)]
pub enum Transferred {
    /// The version that is there is the newest.
    Current,
    Zone(Box<PolicyZone>),
}

/// A transfer, record by record.
#[derive(Debug)]
pub struct Incoming<'z> {
    before: Option<&'z PolicyZone>,
    origin: Vec<u8>,
    /// The SOA of the newest version, with which a transfer begins and ends.
    newest: Option<Record>,
    form: Form,
    bounds: PolicyBounds,
}

#[derive(Debug)]
enum Form {
    /// The first record behind the SOA says which it is.
    Unknown,
    Whole(Box<PolicyBuilder>),
    Changes(Box<Changes>),
    Done,
}

/// What changes from one version to the newest.
#[derive(Debug, Default)]
struct Changes {
    removed: FxHashSet<Key>,
    added: FxHashMap<Key, Record>,
    /// The serial of the version that the changes so far lead to.
    serial: u32,
    /// Whether records are being added, and not removed.
    adds: bool,
    count: usize,
    /// Of owners and data of all records so far.
    bytes: usize,
}

/// A record without its TTL.
type Key = (Box<[u8]>, u16, Vec<u8>);

fn key(record: &Record) -> Key {
    (lower(&record.owner), record.kind.0, record.data.clone())
}

fn serial(soa: &Record) -> Result<u32, String> {
    timers(&soa.data).map(|timers| timers.serial).ok_or_else(|| "an SOA cannot be read".to_owned())
}

/// Whether a serial comes after another (RFC 1982).
fn is_newer(serial: u32, than: u32) -> bool {
    (1..=i32::MAX as u32).contains(&serial.wrapping_sub(than))
}

impl<'z> Incoming<'z> {
    /// A transfer of a zone by its name on the wire. With a version that is there, changes to it may come, and older
    /// versions are refused (RFC 1982).
    pub fn new(origin: &[u8], before: Option<&'z PolicyZone>, bounds: PolicyBounds) -> Self {
        Self { before, origin: origin.to_vec(), newest: None, form: Form::Unknown, bounds }
    }

    /// Takes the records of a message. Returns what the transfer says once it is whole.
    pub fn take(&mut self, records: Vec<Record>) -> Result<Option<Transferred>, String> {
        let is_first = self.newest.is_none();
        let count = records.len();
        for (at, record) in records.into_iter().enumerate() {
            if let Some(done) = self.record(record)? {
                return if at + 1 == count { Ok(Some(done)) } else { Err("records follow the end".to_owned()) };
            }
        }
        let Some(newest) = &self.newest else { return Err("it does not begin with an SOA".to_owned()) };
        // A single SOA says that there is no newer version.
        match self.known().filter(|_| is_first && count == 1) {
            Some(known) if serial(newest)? == known => Ok(Some(Transferred::Current)),
            _ => Ok(None),
        }
    }

    /// The serial of the version that is there.
    fn known(&self) -> Option<u32> {
        self.before.and_then(PolicyZone::timers).map(|timers| timers.serial)
    }

    fn record(&mut self, record: Record) -> Result<Option<Transferred>, String> {
        let Some(newest) = &self.newest else {
            if record.kind != SOA || lower(&record.owner)[..] != lower(&self.origin)[..] {
                return Err("it does not begin with the SOA of the zone".to_owned());
            }
            let newest = serial(&record)?;
            if let Some(known) = self.known().filter(|known| newest != *known && !is_newer(newest, *known)) {
                return Err(format!("the server has an older version, {newest}; the version here is {known}"));
            }
            self.newest = Some(record);
            return Ok(None);
        };
        if record.kind == SOA && lower(&record.owner)[..] != lower(&self.origin)[..] {
            return Err("an SOA stands at the top of the zone, and nowhere else".to_owned());
        }
        let newest_serial = serial(newest)?;
        if let Form::Unknown = self.form {
            let known = self.known();
            let is_change = record.kind == SOA && known.is_some() && Some(serial(&record)?) == known;
            if is_change && known != Some(newest_serial) {
                let changes = Changes { serial: serial(&record)?, ..Changes::default() };
                self.form = Form::Changes(Box::new(changes));
                return Ok(None);
            }
            let mut builder = Box::new(PolicyBuilder::new(&self.origin, self.bounds));
            builder.add(newest, 0)?;
            self.form = Form::Whole(builder);
        }
        let is_end = record.kind == SOA && serial(&record)? == newest_serial;
        match &mut self.form {
            Form::Whole(builder) if record.kind != SOA => builder.add(&record, 0).map(|()| None),
            Form::Whole(_) if !is_end => Err("the zone has changed while it was sent".to_owned()),
            Form::Whole(_) => match std::mem::replace(&mut self.form, Form::Done) {
                Form::Whole(builder) => Ok(Some(Transferred::Zone(Box::new(builder.finish()?)))),
                _ => Ok(None),
            },
            // Other records of the zone itself are no policy.
            Form::Changes(_) if record.kind != SOA && lower(&record.owner)[..] == lower(&self.origin)[..] => Ok(None),
            Form::Changes(changes) => {
                if changes.step(record, newest_serial, self.bounds)? {
                    return self.changed().map(|zone| Some(Transferred::Zone(Box::new(zone))));
                }
                Ok(None)
            }
            Form::Unknown | Form::Done => Err("records follow the end".to_owned()),
        }
    }

    /// The version that is there with all changes.
    fn changed(&mut self) -> Result<PolicyZone, String> {
        let (Form::Changes(changes), Some(before), Some(newest)) =
            (std::mem::replace(&mut self.form, Form::Done), self.before, &self.newest)
        else {
            return Err("there is no version that changes".to_owned());
        };
        let mut builder = PolicyBuilder::new(&self.origin, self.bounds);
        builder.add(newest, 0)?;
        let mut removed = 0;
        for record in before.records() {
            match changes.removed.contains(&key(&record)) {
                true => removed += 1,
                false => builder.add(&record, 0)?,
            }
        }
        if removed != changes.removed.len() {
            return Err("it removes records that are not there".to_owned());
        }
        for record in changes.added.values() {
            builder.add(record, 0)?;
        }
        builder.finish()
    }
}

impl Changes {
    /// Takes a record. True if it ends the changes.
    fn step(&mut self, record: Record, newest: u32, bounds: PolicyBounds) -> Result<bool, String> {
        self.count += 1;
        self.bytes += record.owner.len() + record.data.len();
        if self.count > MOST_CHANGED {
            return Err(format!("it has more than {MOST_CHANGED} changes"));
        }
        if self.bytes > bounds.bytes {
            return Err(format!("its changes take more than {} bytes (`max_bytes`)", bounds.bytes));
        }
        if record.kind == SOA {
            let serial = serial(&record)?;
            // An SOA ends what is removed, and what is added; behind the last version it ends all.
            return match (self.adds, serial == self.serial) {
                (true, true) if serial == newest => Ok(true),
                (true, true) => {
                    self.adds = false;
                    Ok(false)
                }
                (true, false) => Err("versions are missing between its changes".to_owned()),
                (false, _) => {
                    (self.adds, self.serial) = (true, serial);
                    Ok(false)
                }
            };
        }
        let key = key(&record);
        if self.adds {
            self.added.insert(key, record);
        } else if self.added.remove(&key).is_none() {
            self.removed.insert(key);
        }
        Ok(false)
    }
}
