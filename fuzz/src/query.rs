//! Queries as anybody may send them: what is said to them is always a message.

use namewall_dns::wire::{Header, Question, Rcode, WireError, reply};

pub fn query(bytes: &[u8]) {
    let end = Question::end(bytes);
    let mut echo = bytes.to_vec();
    if let Some(flags) = echo.get_mut(2) {
        *flags |= 0x80;
    }
    // Its own bytes as an answer repeat it, if it asks at all.
    assert_eq!(Question::is_repeated(bytes, &echo), end.is_ok());
    if let Ok(end) = end {
        assert!((17..=bytes.len().min(12 + 255 + 4)).contains(&end), "the question ends at {end}");
        let asked = Question::of_answer(&echo).expect("a question that ends can be read");
        assert_eq!(asked.name.as_bytes().len(), end - 12 - 4);
        echo[end - 1] ^= 1;
        assert!(!Question::is_repeated(bytes, &echo), "of another class");
    }
    if end == Err(WireError::NotAQuery) || bytes.len() < 12 {
        // Nothing is said to it.
        return;
    }
    for rcode in [Rcode::FORM_ERR, Rcode::SERV_FAIL, Rcode::NOT_IMP] {
        let failure = reply::failure(bytes, rcode);
        let header = Header::read(&failure).expect("it has a header");
        assert!(header.is_answer && !header.is_truncated && header.answers == 0);
        assert_eq!((header.id, header.rcode), (Header::read(bytes).expect("so has the query").id, rcode));
        // Never longer than what was asked: nobody is flooded by asking in his name.
        assert!(failure.len() <= bytes.len(), "{} for {} bytes", failure.len(), bytes.len());
        assert_eq!(Question::is_repeated(bytes, &failure), end.is_ok());
        assert_eq!(usize::from(header.questions), usize::from(end.is_ok()));
        let has_opt = failure[11] == 1;
        assert_eq!(failure.len(), end.unwrap_or(12) + if has_opt { 11 } else { 0 });
    }
}
