//! Zones as they are written in files (RFC 1035 §5), and what they answer (RFC 1034 §4.3.2): `words` has the
//! syntax, `name`, `record` and `data` read what it says, `read` makes a [`Zone`] of a file, `lookup` answers from it.
//! `domain_list` reads lists of names, and `name_table` keeps a million names in little memory.
//! `policy` has response policy zones.
//! Pure: no file is opened here.

mod data;
mod domain_list;
mod lookup;
mod name;
mod name_table;
mod policy;
mod read;
mod record;
mod words;

pub use domain_list::{BadLine, DomainList, ListError, MOST_LISTED};
pub use lookup::{Answer, Found};
pub use name_table::{Above, Full, NameTable};
pub use policy::{
    Incoming, PolicyAction, PolicyBounds, PolicyBuilder, PolicyFound, PolicyZone, Timers, Transferred, TriggerKind,
};
pub use read::{Zone, ZoneError};
pub use record::{Record, parse_one};
