//! DNS over HTTPS as messages (RFC 8484): which DNS query a request carries, and how long its answer may be kept. Pure:
//! the bytes come from clients, so every length is checked.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::wire::{Header, Rcode, RecordType, Section, records};

/// The path that is served, and asked where a Corefile names no other.
pub const PATH: &str = "/dns-query";
/// The media type of DNS messages.
pub const MEDIA_TYPE: &str = "application/dns-message";
/// The longest DNS message.
pub const LONGEST: usize = 65_535;
/// The longest query that is accepted. A question with its options and padding (RFC 8467) has a few hundred bytes; the
/// bound keeps small what one connection can make the server hold.
pub const LONGEST_QUERY: usize = 4 << 10;

/// How long an answer without a TTL of its own may be kept, and any answer, in seconds: as with CoreDNS.
const SHORT_AGE: u32 = 5;
const LONGEST_AGE: u32 = 3_600;

/// Why a request carries no DNS query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("the path is not /dns-query")]
    Path,
    #[error("the method is neither GET nor POST")]
    Method,
    #[error("the content type is not application/dns-message")]
    MediaType,
    #[error("the parameter `dns` is missing or stands twice")]
    Parameter,
    #[error("the parameter `dns` is not base64url")]
    Encoding,
    #[error("the query is longer than 4096 bytes")]
    TooLong,
    #[error("the message is not a DNS query")]
    NotAQuery,
}

impl BadRequest {
    /// The HTTP status code.
    pub fn status(self) -> u16 {
        match self {
            Self::Path => 404,
            Self::Method => 405,
            Self::MediaType => 415,
            Self::TooLong => 413,
            Self::Parameter | Self::Encoding | Self::NotAQuery => 400,
        }
    }
}

/// The DNS query of a GET request, from the part of its URL behind the `?`.
pub fn query_of_get(parameters: Option<&str>) -> Result<Vec<u8>, BadRequest> {
    let mut values = parameters.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("dns="));
    let (Some(value), None) = (values.next(), values.next()) else { return Err(BadRequest::Parameter) };
    if value.len() > LONGEST_QUERY.div_ceil(3).saturating_mul(4) {
        return Err(BadRequest::TooLong);
    }
    check(decode(value).ok_or(BadRequest::Encoding)?)
}

/// The DNS query of a POST request, from its body.
pub fn query_of_post(body: Vec<u8>) -> Result<Vec<u8>, BadRequest> {
    check(body)
}

/// A message that may be a query: no answer, which nobody answers.
fn check(message: Vec<u8>) -> Result<Vec<u8>, BadRequest> {
    if message.len() > LONGEST_QUERY {
        return Err(BadRequest::TooLong);
    }
    match Header::read(&message) {
        Ok(header) if !header.is_answer => Ok(message),
        _ => Err(BadRequest::NotAQuery),
    }
}

/// Decodes base64url without padding (RFC 4648 §5). Returns None for any other text.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for four in text.as_bytes().chunks(4) {
        let mut values = [0; 4];
        for (value, &character) in values.iter_mut().zip(four) {
            *value = value_of(character)?;
        }
        let [one, two, three, last] = values;
        let three_bytes = [one << 2 | two >> 4, two << 4 | three >> 2, three << 6 | last];
        let (whole, rest) = three_bytes.split_at_checked(four.len().checked_sub(1).filter(|count| *count > 0)?)?;
        // Bits that are left over behind the last byte must be zero: one message has one encoding.
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

fn value_of(character: u8) -> Option<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    alphabet.iter().position(|&one| one == character).and_then(|at| u8::try_from(at).ok())
}

/// How many seconds an answer may be kept by HTTP caches (RFC 8484 §5.1): the smallest TTL of its records, an hour at
/// most; five seconds for errors and for answers without records.
pub fn max_age(answer: &[u8]) -> u32 {
    let (Ok(header), Ok(records)) = (Header::read(answer), records(answer)) else { return SHORT_AGE };
    let is_denial = header.rcode == Rcode::NX_DOMAIN && header.answers == 0;
    if header.rcode != Rcode::NO_ERROR && !is_denial {
        return SHORT_AGE;
    }
    let in_authority = |kind| records.iter().any(|one| one.section == Section::Authority && one.kind == kind);
    // A referral: the name's own servers have the answer.
    if header.rcode == Rcode::NO_ERROR
        && header.answers == 0
        && in_authority(RecordType(2))
        && !in_authority(RecordType(6))
    {
        return SHORT_AGE;
    }
    let opt = RecordType(41);
    let least = records.iter().filter(|one| one.kind != opt).map(|one| one.ttl).min();
    least.map_or(SHORT_AGE, |least| least.min(LONGEST_AGE))
}

#[cfg(test)]
mod tests;
