//! Requests of DNS over HTTPS: what clients put into a URL or a body, and how long the answer may be cached.

use namewall_dns::doh::{LONGEST, max_age, query_of_get, query_of_post};

pub fn doh(bytes: &[u8]) {
    assert!(max_age(bytes) <= 3_600);
    if let Ok(query) = query_of_post(bytes.to_vec()) {
        assert_eq!(query, bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = query_of_get(Some(&text));
    let Ok(query) = query_of_get(Some(&format!("dns={text}"))) else { return };
    assert!(query.len() <= LONGEST && query.len() <= text.len(), "a query is not longer than its text");
    assert_eq!(query_of_post(query.clone()), Ok(query), "both ways give the same query");
}
