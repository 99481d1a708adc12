//! Zones as they are written in files (RFC 1035 §5), and what they answer (RFC 1034 §4.3.2): `words` has the
//! syntax, `name`, `record` and `data` read what it says, `read` makes a [`Zone`] of a file, `lookup` answers from it.
//! Pure: no file is opened here.

mod data;
mod lookup;
mod name;
mod read;
mod record;
mod words;

pub use lookup::{Answer, Found};
pub use read::{Zone, ZoneError};
pub use record::{Record, parse_one};
