//! The data of a record, from its words to its bytes. `domain` knows the form of every type; what is added here are
//! times with units in an SOA, bytes beyond ASCII in texts, and errors that show the form of the common types.

use crate::words::Word;
use domain::base::Name;
use domain::base::iana::Rtype;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};
use std::fmt::Write;

/// The forms that an error shows.
const FORMS: [(Rtype, &str); 10] = [
    (Rtype::A, "IPV4-ADDRESS"),
    (Rtype::AAAA, "IPV6-ADDRESS"),
    (Rtype::CAA, "FLAGS TAG VALUE"),
    (Rtype::CNAME, "NAME"),
    (Rtype::MX, "PREFERENCE NAME"),
    (Rtype::NS, "NAME"),
    (Rtype::PTR, "NAME"),
    (Rtype::SOA, "SERVER MAILBOX SERIAL REFRESH RETRY EXPIRE MINIMUM"),
    (Rtype::SRV, "PRIORITY WEIGHT PORT NAME"),
    (Rtype::TXT, "TEXT…"),
];

/// The bytes of a record's data. Relative names in it are under the origin.
pub(crate) fn data(kind: Rtype, words: &[Word], origin: &[u8]) -> Result<Vec<u8>, String> {
    let entry = entry(kind, words)?;
    let mut file = Zonefile::from(entry.as_str());
    let origin = Name::from_octets(origin.to_vec().into()).map_err(|error| error.to_string())?;
    file.set_origin(origin);
    let record = match file.next_entry() {
        Ok(Some(Entry::Record(record))) => record,
        Ok(_) => return Err(refusal(kind, words, "")),
        Err(error) => return Err(refusal(kind, words, &error.to_string())),
    };
    let mut bytes = Vec::new();
    let Ok(()) = record.data().compose_rdata(&mut bytes);
    if bytes.len() > usize::from(u16::MAX) {
        return Err("its data are longer than 65535 bytes".to_owned());
    }
    Ok(bytes)
}

/// The words as one entry of a zone file, in the form that `domain` reads.
fn entry(kind: Rtype, words: &[Word]) -> Result<String, String> {
    let mut entry = format!(". 0 IN {kind}");
    let is_generic = words.first().is_some_and(Word::is_generic_mark);
    for (at, word) in words.iter().enumerate() {
        entry.push(' ');
        if kind == Rtype::SOA && at >= 3 && !is_generic {
            write!(entry, "{}", crate::record::ttl(&word.text)?).map_err(|error| error.to_string())?;
            continue;
        }
        let quote = if word.is_quoted { "\"" } else { "" };
        entry.push_str(quote);
        push_ascii(&mut entry, &word.text)?;
        entry.push_str(quote);
    }
    entry.push('\n');
    Ok(entry)
}

/// Adds a text in which each byte beyond ASCII, and each control character, is an escape.
fn push_ascii(entry: &mut String, text: &str) -> Result<(), String> {
    let mut is_escaped = false;
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) {
            entry.push(char::from(byte));
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        // The `\` that is already there begins the number.
        let slash = if std::mem::take(&mut is_escaped) { "" } else { "\\" };
        entry.push_str(&format!("{slash}{byte:03}"));
    }
    // It would escape what comes after the word, and join it to the next.
    if is_escaped { Err(format!("`{text}` ends within an escape")) } else { Ok(()) }
}

fn refusal(kind: Rtype, words: &[Word], error: &str) -> String {
    // The error begins with the place in the entry that was made here.
    let why = error.splitn(3, ':').nth(2).map_or("", str::trim);
    let written = words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ");
    let form = FORMS.iter().find(|(one, _)| *one == kind).map(|(_, form)| *form);
    match form {
        _ if words.first().is_some_and(Word::is_generic_mark) => {
            "what follows `\\#` is the number of bytes, and as many pairs of hexadecimal digits".to_owned()
        }
        Some(form) if written.is_empty() => format!("{kind} takes `{form}`, and nothing follows it"),
        Some(form) => format!("{kind} takes `{form}`, not `{written}` ({why})"),
        None if why.contains("unknown record type") => {
            format!("{kind} takes `\\# LENGTH HEXADECIMAL…`, not `{written}`")
        }
        None => format!("`{written}` cannot be read as data of {kind} ({why})"),
    }
}
