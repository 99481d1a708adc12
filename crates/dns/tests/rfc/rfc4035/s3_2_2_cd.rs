//! RFC 4035 §3.2.2: CD is copied into the answer, ours too; AD is never set by who has checked nothing (§3.2.3).

use crate::stub::{Client, Upstream, plain, query, serve, settings};
use namewall_dns::Settings;

#[test]
fn a_failure_of_our_own_copies_cd_and_not_ad() {
    let silent = Upstream::new(|_| Vec::new());
    let server = serve(Settings { tries: 1, ..settings(&[&silent]) }, plain());
    for (asked_with, answered_with) in [(0x00, 0x82), (0x10, 0x92), (0x20, 0x82), (0x30, 0x92)] {
        let mut asked = query(7, "www.example");
        asked[3] = asked_with;
        assert_eq!(Client::of(&server).ask(&asked).unwrap()[3], answered_with, "{asked_with:#x}");
    }
}
