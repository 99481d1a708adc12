//! The seeds of the fuzz targets `answer` and `query`, written down where they
//! can be read. `UPDATE_EXPECT=1` writes them to `fuzz/corpus`; inputs that
//! broke something stand beside them there.

use crate::message::{Packing, name, written};
use crate::stub::query;
use std::fs;
use std::path::Path;

const ADDRESS: &str = "www.example 60 A 192.0.2.1";

fn hold(target: &str, seeds: &[(&str, Vec<u8>)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    for (seed, bytes) in seeds {
        let file = folder.join(seed);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&file, bytes).unwrap();
        }
        let kept = fs::read(&file).unwrap_or_default();
        assert_eq!(&kept, bytes, "fuzz/corpus/{target}/{seed} is another; UPDATE_EXPECT=1 writes it anew");
    }
}

fn chain(links: usize) -> Vec<u8> {
    let aliases = (0..links).map(|at| format!("{at}.example 60 CNAME {}.example", at + 1));
    let records: Vec<String> = aliases.chain([format!("{links}.example 60 A 192.0.2.1")]).collect();
    let lines: Vec<&str> = records.iter().map(String::as_str).collect();
    written("0.example A", &lines, Packing::Compressed)
}

fn compressed(question: &str, records: &[&str]) -> Vec<u8> {
    written(question, records, Packing::Compressed)
}

fn changed(mut message: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut message);
    message
}

#[test]
fn seeds_of_answer() {
    let typical = ["www.example 300 CNAME cdn.example", "cdn.example 60 A 192.0.2.1", "cdn.example 60 A 192.0.2.2"];
    let backwards = [typical[2], typical[1], typical[0]];
    let both = [ADDRESS, "www.example 60 AAAA 2001:db8::1", "www.example 60 TXT text"];
    let two = ["www.example 60 CNAME a.example", "www.example 60 CNAME b.example", "a.example 60 A 192.0.2.1"];
    let looped = ["www.example 60 CNAME a.example", "a.example 60 CNAME www.example"];
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    let one_a = |owner: &[u8]| {
        let a = b"\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
        changed(compressed("www.example A", &[]), |message| {
            message[7] = 1;
            message.extend([owner, a].concat());
        })
    };
    hold(
        "answer",
        &[
            ("typical", compressed("www.example A", &typical)),
            ("backwards", written("www.example A", &backwards, Packing::Plain)),
            ("aaaa", compressed("www.example AAAA", &both)),
            ("any", compressed("www.example ANY", &both)),
            ("foreign", compressed("www.example A", &["evil.example 60 A 192.0.2.1", ADDRESS])),
            ("chain-of-16", chain(16)),
            ("chain-of-17", chain(17)),
            ("loop", compressed("www.example A", &looped)),
            ("two-aliases", compressed("www.example A", &two)),
            ("other-class", compressed("www.example A", &["www.example 60 CH A 192.0.2.1", ADDRESS])),
            ("short-address", compressed("www.example A", &["www.example 60 A \\# 3 c00002"])),
            ("unknown-type", compressed("www.example A", &["www.example 60 TYPE65280 \\# 2 c0ff", ADDRESS])),
            ("ttl-with-its-high-bit", compressed("www.example A", &["www.example 2147483708 A 192.0.2.1"])),
            ("odd-labels", compressed("a\\.b.\\000.EXAMPLE A", &["A\\.B.\\000.example 60 A 192.0.2.1"])),
            ("longest-name", compressed(&format!("{longest} A"), &[&format!("{longest} 60 A 192.0.2.1")])),
            ("pointer-to-itself", one_a(&[0xc0, 29])),
            ("pointer-forwards", one_a(&[0xc0, 31])),
            ("pointer-into-a-label", one_a(&[0xc0, 13])),
            ("nxdomain", changed(compressed("www.example A", &[]), |message| message[3] |= 3)),
            ("truncated", changed(compressed("www.example A", &[ADDRESS]), |message| message[2] |= 2)),
            ("with-opt", {
                let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
                changed(compressed("www.example A", &[ADDRESS]), |message| {
                    message[11] = 1;
                    message.extend(opt);
                })
            }),
            ("no-question", changed(compressed("www.example A", &[ADDRESS]), |message| message[5] = 0)),
            ("cut", changed(compressed("www.example A", &typical), |message| message.truncate(50))),
            ("empty", Vec::new()),
        ],
    );
}

#[test]
fn seeds_of_query() {
    let asked = || query(0x1234, "www.example");
    let ask = |name: &[u8]| [&asked()[..12], name, &[0, 1, 0, 1]].concat();
    let with = |count: u8, records: &[u8]| {
        changed(asked(), |message| {
            message[11] = count;
            message.extend(records);
        })
    };
    let label = "a".repeat(63);
    hold(
        "query",
        &[
            ("plain", asked()),
            ("mixed-case", query(7, "wWw.ExAmPlE")),
            ("root", query(7, "")),
            ("opt", with(1, b"\0\0\x29\x04\xd0\0\0\0\0\0\0")),
            ("opt-dnssec-cookie", with(1, b"\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08cookie!!")),
            ("opt-behind-tsig", with(2, b"\x03key\0\0\xfa\0\xff\0\0\0\0\0\x03abc\0\0\x29\x04\xd0\0\0\0\0\0\0")),
            ("opt-cut", with(1, b"\0\0\x29\x04\xd0\0\0\0")),
            ("no-question", changed(asked(), |message| message[5] = 0)),
            ("two-questions", changed(asked(), |message| message[5] = 2)),
            ("update", changed(asked(), |message| message[2] |= 5 << 3)),
            ("answer", changed(asked(), |message| message[2] |= 0x80)),
            ("checking-disabled", changed(asked(), |message| message[3] = 0x30)),
            ("pointer", ask(&[0xc0, 12])),
            ("odd-labels", ask(&name("a\\.b.\\000\\255.example"))),
            ("longest-name", ask(&name(&format!("{label}.{label}.{label}.{}", &label[..61])))),
            ("longer-name", ask(&name(&format!("{label}.{label}.{label}.{}", &label[..62])))),
            ("unknown-kind-of-label", ask(&[0x41, 0])),
            ("cut", changed(asked(), |message| message.truncate(20))),
            ("header", changed(asked(), |message| message.truncate(12))),
            ("empty", Vec::new()),
        ],
    );
}
