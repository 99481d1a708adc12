//! What `domain`, which others wrote, reads in the answer section of a message. Nothing here shares our view of the
//! wire format. It says nothing of messages that it refuses; what is done with those is for `naive` to check.

use crate::naive::{self, Labels, Record};
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, ParsedName, ParsedRecord};
use domain::rdata::Cname;

/// Fails if `domain` reads other records than `naive`. Names that only one of them accepts are left out: each refuses
/// some pointers that the other follows. What we accept is for `naive` and `wire` to agree on.
pub(crate) fn agree(message: &[u8]) {
    let Some(mut theirs) = records(message) else { return };
    let Some(mut ours) = answer_section(message) else {
        let questions = Message::from_octets(message).map(|message| message.header_counts().qdcount());
        assert_ne!(questions.ok(), Some(1), "only `domain` reads {message:02x?}");
        return;
    };
    for (our, their) in ours.iter_mut().zip(&mut theirs) {
        our.owner = our.owner.take().or_else(|| their.owner.clone());
        our.target = our.target.take().or_else(|| their.target.clone());
        their.target = their.target.take().or_else(|| our.target.clone());
    }
    assert_eq!(ours, theirs, "of {message:02x?}");
}

/// What `naive` reads in the answer section of a message with one question.
fn answer_section(message: &[u8]) -> Option<Vec<Record>> {
    let (_, after) = naive::name_at(message, 12).filter(|_| naive::number(message, 4) == Some(1))?;
    naive::records(message, after + 4)
}

/// None if `domain` refuses the message.
fn records(message: &[u8]) -> Option<Vec<Record>> {
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
