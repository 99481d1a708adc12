//! The stored state: read as a whole or refused. What is read survives being
//! written again, and every object in it is read or refused.

use namewall_cluster::{Settings, Store, Stored, digest};

pub fn state(bytes: &[u8]) {
    check(bytes);
    // Nobody guesses a digest: the same bytes as the body of a state that is not damaged.
    let body = [b"namewall last-good 1\n", bytes].concat();
    let sealed = [&body[..], format!("sha256 {}\n", digest(&body)).as_bytes()].concat();
    check(&sealed);
    // One that is cut off is never read.
    assert!(Stored::decode(&sealed[..sealed.len() - 1]).is_err());
}

fn check(bytes: &[u8]) {
    let Ok(stored) = Stored::decode(bytes) else { return };
    let again = stored.encode().expect("it is as small as it was");
    assert_eq!(Stored::decode(&again).as_ref(), Ok(&stored));
    if let Ok(mut store) = Store::of_stored(&stored.entries) {
        store.read(&Settings::default());
        let texts: Vec<_> = store.stored_texts().into_iter().chain(store.stored_facts()).collect();
        Store::of_stored(&texts).expect("what a store has stored is read again");
    }
}
