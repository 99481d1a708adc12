//! What `domain`, which others wrote, reads in the answer section of a message. Nothing here shares our view of the
//! wire format. It says nothing of messages that it refuses; what is done with those is for `naive` to check.

use crate::naive::{Labels, Record};
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, ParsedName, ParsedRecord};
use domain::rdata::Cname;

/// None if `domain` refuses the message.
pub(crate) fn records(message: &[u8]) -> Option<Vec<Record>> {
    let message = Message::from_octets(message).ok()?;
    message.answer().ok()?.map(|record| record.ok().and_then(|record| plain(&record))).collect()
}

fn plain(record: &ParsedRecord<'_, &[u8]>) -> Option<Record> {
    let kind = record.rtype().to_int();
    let bytes = record.to_record::<UnknownRecordData<_>>().ok().flatten()?;
    let alias = record.to_record::<Cname<_>>().ok().flatten();
    // RFC 2181 §8.
    let ttl = Some(record.ttl().as_secs()).filter(|ttl| *ttl < 1 << 31).unwrap_or(0);
    Some(Record {
        owner: Some(labels(&record.owner())),
        kind,
        class: record.class().to_int(),
        ttl,
        data: bytes.data().data().to_vec(),
        target: alias.map(|alias| labels(alias.data().cname())),
    })
}

fn labels<Octets: AsRef<[u8]>>(name: &ParsedName<Octets>) -> Labels {
    let labels = name.iter().filter(|label| !label.is_root());
    labels.map(|label| label.as_slice().to_ascii_lowercase()).collect()
}
