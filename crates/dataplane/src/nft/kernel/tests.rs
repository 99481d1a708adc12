//! What is known of the kernel's table after a refusal.

use super::*;
use nix::errno::Errno;

#[test]
fn only_a_refusal_for_another_reason_leaves_the_table_known() {
    let rejected = |errno| NftError::Rejected {
        table: "namewall".to_owned(),
        source: crate::netlink::Error::Refused { sequence: 1, errno },
    };
    for errno in [Errno::ENOENT, Errno::EEXIST, Errno::EBUSY] {
        assert!(!rejected(errno).leaves_all_as_it_was(), "{errno}");
    }
    for errno in [Errno::EINVAL, Errno::ENOMEM, Errno::EMSGSIZE] {
        assert!(rejected(errno).leaves_all_as_it_was(), "{errno}");
    }
}
