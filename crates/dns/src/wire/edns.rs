//! EDNS0 (RFC 6891): what a message says of itself in its OPT record.

use super::{Fields, HEADER, Name, Question, WireError, u16_at, u32_at};

/// The type of an OPT record.
pub(super) const OPT: u16 = 41;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edns<'a> {
    /// What its sender takes over UDP.
    pub payload: u16,
    pub version: u8,
    pub flags: u16,
    options: &'a [u8],
}

impl<'a> Edns<'a> {
    const DO: u16 = 0x8000;

    /// The OPT record of a message, which stands somewhere behind its question, if there is one. What
    /// cannot be read as far as that has none.
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let mut at = question_end(message)?;
        let [answers, authorities, additionals] = [6, 8, 10].map(|count| u16_at(message, count).map_or(0, usize::from));
        let before = answers.saturating_add(authorities);
        for number in 0..before.saturating_add(additionals) {
            let owner = at;
            let fields = Fields::behind(Name::skip(message, at).ok()?);
            let kind = u16_at(message, fields.kind).ok()?;
            let end = fields.end(message).ok()?;
            let options = message.get(fields.data..end)?;
            if number >= before && kind == OPT && message.get(owner) == Some(&0) {
                // An OPT record has other things where others have a class and a TTL.
                let payload = u16_at(message, fields.class).ok()?;
                let [_, version, flags @ ..] = u32_at(message, fields.ttl).ok()?.to_be_bytes();
                return Some(Self { payload, version, flags: u16::from_be_bytes(flags), options });
            }
            at = end;
        }
        None
    }

    /// An error if a query has records or options that cannot be read, or more than one OPT record, or one elsewhere
    /// than it belongs (RFC 6891 §6.1.1): servers behind us might take another of them than we do.
    pub fn check(query: &[u8]) -> Result<(), WireError> {
        let mut at = Question::end(query)?;
        let mut before = usize::from(u16_at(query, 6)?).saturating_add(usize::from(u16_at(query, 8)?));
        let mut has_one = false;
        for _ in 0..before.saturating_add(usize::from(u16_at(query, 10)?)) {
            let owner = at;
            let fields = Fields::behind(Name::skip(query, at)?);
            let end = fields.end(query)?;
            let data = query.get(fields.data..end).ok_or(WireError::Short)?;
            if u16_at(query, fields.kind)? == OPT {
                if has_one || before > 0 || query.get(owner) != Some(&0) {
                    return Err(WireError::Data);
                }
                has_one = true;
                let mut rest = data;
                while !rest.is_empty() {
                    let after = rest.get(4..).ok_or(WireError::Data)?;
                    rest = after.get(usize::from(u16_at(rest, 2)?)..).ok_or(WireError::Data)?;
                }
            }
            before = before.saturating_sub(1);
            at = end;
        }
        Ok(())
    }

    /// Whether signatures are wanted.
    pub fn is_dnssec_ok(&self) -> bool {
        self.flags & Self::DO != 0
    }

    /// Its options by code. What is cut short ends them.
    pub fn options(&self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            let (code, length) = (u16_at(rest, 0).ok()?, usize::from(u16_at(rest, 2).ok()?));
            let (data, after) = rest.get(4..)?.split_at_checked(length)?;
            rest = after;
            Some((code, data))
        })
    }
}

fn question_end(message: &[u8]) -> Option<usize> {
    match Question::end(message) {
        Ok(end) => Some(end),
        Err(WireError::NotAQuery) => Some(Name::skip(message, HEADER).ok()?.saturating_add(Question::AFTER_NAME)),
        Err(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    fn query(options: &[u8]) -> Vec<u8> {
        let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, b'a', 0, 0, 1, 0, 1];
        query.extend([0, 0, 41, 4, 208, 0, 0, 0x80, 0]);
        query.extend((options.len() as u16).to_be_bytes());
        query.extend(options);
        query
    }

    #[test]
    fn options_are_found_by_their_codes() {
        let query = query(&[0xff, 0xed, 0, 3, b'a', b'b', b'c', 0, 10, 0, 0]);
        let edns = Edns::read(&query).unwrap();
        assert_eq!((edns.payload, edns.version, edns.is_dnssec_ok()), (1_232, 0, true));
        let options: Vec<(u16, &[u8])> = edns.options().collect();
        assert_eq!(options, [(0xffed, &b"abc"[..]), (10, &b""[..])]);
    }

    #[test]
    fn a_query_says_one_thing_of_itself() {
        assert_eq!(Edns::check(&query(&[])), Ok(()));
        assert_eq!(Edns::check(&query(&[0xff, 0xed, 0, 1, b'a', 0xff, 0xed, 0, 0])), Ok(()));
        for options in [&[0, 1, 0, 1, 7, 0, 2, 0, 9, 1][..], &[0, 1, 0], &[0]] {
            assert_eq!(Edns::check(&query(options)), Err(WireError::Data), "{options:?}");
        }
        let one = query(&[]);
        let record = one[one.len() - 11..].to_vec();
        let with = |counts: [u8; 3], records: &[&[u8]]| {
            let mut query = one[..one.len() - 11].to_vec();
            (query[7], query[9], query[11]) = (counts[0], counts[1], counts[2]);
            query.extend(records.concat());
            Edns::check(&query).is_ok()
        };
        // Another record, of no name and no data.
        let other = [0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
        let of_a_name = [&[1, b'a'][..], &record].concat();
        assert!(with([0, 0, 0], &[]) && with([1, 1, 2], &[&other, &other, &other, &record]));
        assert!(with([0, 0, 2], &[&record, &other]));
        assert!(!with([0, 0, 2], &[&record, &record]), "two of them");
        assert!(!with([0, 1, 0], &[&record]) && !with([1, 0, 0], &[&record]), "one that is no additional record");
        assert!(!with([0, 0, 1], &[&of_a_name]), "one of a name");
        assert!(!with([0, 0, 1], &[&record[..10]]) && !with([0, 0, 2], &[&record]), "one that is cut short");
    }

    #[test]
    fn an_option_that_is_cut_short_ends_them() {
        let query = query(&[0, 1, 0, 1, 7, 0, 2, 0, 9, 1]);
        assert_eq!(Edns::read(&query).unwrap().options().collect::<Vec<_>>(), [(1, &[7][..])]);
        assert!(Edns::read(&query[..query.len() - 1]).is_none(), "the record itself is");
        assert!(Edns::read(&query[..12]).is_none());
    }
}
