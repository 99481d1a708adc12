//! RFC 2181 §8: a TTL has 31 bits; with the highest of the 32 set it is 0.

use crate::check::check;

#[test]
fn a_ttl_with_its_high_bit_set_is_zero() {
    for (ttl, counts) in
        [(0_u32, 0), (1, 1), (0x7fff_ffff, 0x7fff_ffff_u32), (0x8000_0000, 0), (0x8000_003c, 0), (0xffff_ffff, 0)]
    {
        let address = format!("a.example {ttl} A 192.0.2.1");
        check("a.example A", &[&address], &format!("192.0.2.1 {counts}s"));
    }
}

#[test]
fn and_so_is_an_aliases() {
    let records = ["a.example 4294967295 CNAME b.example", "b.example 60 A 192.0.2.1"];
    check("a.example A", &records, "192.0.2.1 0s via b.example");
}
