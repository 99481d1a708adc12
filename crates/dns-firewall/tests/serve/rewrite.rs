//! `rewrite edns0`, `rewrite rcode` and `rewrite cname`: what upstreams are sent, and what clients get.

use crate::stub::{Over, Upstream};
use crate::support::{Ask, Firewall, answer, refused};
use namewall_dns::wire::Edns;

/// An upstream that answers with the options it was sent, as TXT.
fn echo() -> Upstream {
    Upstream::with(|query, _: Over| {
        let said = match Edns::read(query) {
            None => "none".to_owned(),
            Some(edns) => {
                let options = edns.options().map(|(code, data)| format!("{code:x}={data:02x?}").replace(", ", "-"));
                format!("{}:{}", edns.payload, options.collect::<Vec<_>>().join(","))
            }
        };
        vec![answer(query, &[&format!("@ 30 TXT {said}")])]
    })
}

/// What the upstream of a block with these rules was sent.
#[track_caller]
fn sent(rules: &str, question: &str, expected: &str) {
    let up = echo();
    let firewall = Firewall::new(&format!(".:53 {{\n{rules}\nforward . {}\n}}", up.address));
    let ask = Ask::from(question);
    // A question that no rule changes is forwarded by the server itself.
    let seen = firewall.exchange_bytes(&ask, &answer(&ask.query, &["@ 30 TXT as-it-was"]));
    let text = if seen == "pass" { "as-it-was".to_owned() } else { text_of(&seen) };
    assert_eq!(text, expected, "{rules}: {question}: {seen}");
}

fn text_of(shown: &str) -> String {
    let hex = shown.split(" TXT ").nth(1).unwrap_or_default().split(';').next().unwrap_or_default();
    hex.trim().trim_matches('"').to_owned()
}

#[test]
fn options_are_set_appended_replaced_and_unset() {
    let set = "rewrite edns0 local set 0xffee 0x0aff";
    sent(set, "TXT a.test", "1232:ffee=[0a-ff]");
    sent(set, "TXT a.test size 4096", "4096:ffee=[0a-ff]");
    sent(set, "TXT a.test 0xffed=x:01 0xffee=x:02 0xffef=x:03", "1232:ffed=[01],ffee=[0a-ff],ffef=[03]");
    sent("rewrite edns0 local append 65518 hi", "TXT a.test 0xffee=x:02", "1232:ffee=[02],ffee=[68-69]");
    sent("rewrite edns0 local replace 65518 hi", "TXT a.test 0xffee=x:02", "1232:ffee=[68-69]");
    sent("rewrite edns0 local replace 65518 hi", "TXT a.test", "as-it-was");
    sent("rewrite edns0 local unset 0xffee", "TXT a.test 0xffee=x:02 0xffed=x:01", "1232:ffed=[01]");
    sent("rewrite edns0 nsid set revert", "TXT a.test", "1232:3=[]");
    sent(
        "rewrite edns0 local set 0xffee {request/tenant}\nrequest {\nedns0 0xffed tenant bytes\n}",
        "TXT a.test 0xffed=me",
        "1232:ffed=[6d-65],ffee=[6d-65]",
    );
    sent(
        "rewrite edns0 local set 0xffee {request/tenant}\nrequest {\nedns0 0xffed tenant bytes\n}",
        "TXT a.test",
        "as-it-was",
    );
}

#[test]
fn options_say_who_asks() {
    let variable = |name: &str| format!("rewrite edns0 local set 0xffee {{{name}}}");
    sent(&variable("qname"), "TXT ab.test", "1232:ffee=[61-62-2e-74-65-73-74-2e]");
    sent(&variable("qname"), "TXT aB.test", "1232:ffee=[61-42-2e-74-65-73-74-2e]");
    let renamed = format!("rewrite continue name ab.test c.test\n{}", variable("qname"));
    sent(&renamed, "TXT aB.test", "1232:ffee=[63-2e-74-65-73-74-2e]");
    sent(&variable("qtype"), "TXT a.test", "1232:ffee=[00-10]");
    sent(&variable("client_ip"), "TXT a.test from 10.1.2.3", "1232:ffee=[0a-01-02-03]");
    sent(&variable("client_port"), "TXT a.test from 10.1.2.3:258", "1232:ffee=[01-02]");
    sent(&variable("server_port"), "TXT a.test", "1232:ffee=[00-35]");
    sent(&variable("protocol"), "TXT a.test tcp", "1232:ffee=[74-63-70]");
    let subnet = "rewrite edns0 subnet set 20 36";
    sent(subnet, "TXT a.test from 10.1.255.3", "1232:8=[00-01-14-00-0a-01-f0]");
    sent(subnet, "TXT a.test from 2001:db8:ffff::1", "1232:8=[00-02-24-00-20-01-0d-b8-f0]");
    sent("rewrite edns0 subnet unset", "TXT a.test 0x0008=x:00011800c00002", "1232:");
}

/// What a client says of itself must not stand beside what the server says of it.
#[test]
fn a_client_cannot_keep_a_second_option_of_a_code_that_is_set() {
    let set = "rewrite edns0 local set 0xffee {client_ip}";
    sent(set, "TXT a.test from 10.1.2.3 0xffee=x:01 0xffed=x:05 0xffee=x:02", "1232:ffee=[0a-01-02-03],ffed=[05]");
    sent(
        "rewrite edns0 subnet set 32 128",
        "TXT a.test from 10.1.2.3 0x0008=x:00011800c00002",
        "1232:8=[00-01-20-00-0a-01-02-03]",
    );
}

/// Where the server has nothing to say, or no room for it, what the client says of itself does not pass either.
#[test]
fn a_client_cannot_say_what_the_server_would_say() {
    let tenant = "rewrite edns0 local set 0xffee {request/tenant}\nrequest {\nedns0 0xffed tenant bytes\n}";
    sent(tenant, "TXT a.test 0xffee=x:01", "1232:");
    sent(&tenant.replace("set", "replace"), "TXT a.test 0xffee=x:01", "1232:");

    let up = echo();
    let rule = "rewrite edns0 local set 0xffee {client_ip}";
    let firewall = Firewall::new(&format!(".:53 {{\n{rule}\nforward . {}\n}}", up.address));
    let asked = |ask: &Ask| firewall.exchange_bytes(ask, &answer(&ask.query, &["@ 30 TXT as-it-was"]));

    let forged = [0xff, 0xee, 0, 1, 1];
    // The options of the client fill the message.
    let room = usize::from(u16::MAX) - Ask::from("TXT a.test").query.len() - OPT.len() - 2 - forged.len() - 4;
    let filler = [&[0xff, 0xed][..], &(room as u16).to_be_bytes(), &vec![0; room]].concat();
    assert_eq!(asked(&with_opts(&[[&forged[..], &filler].concat()])), "answer SERVFAIL; edns");
    // A second OPT record.
    assert_eq!(asked(&with_opts(&[forged.to_vec(), forged.to_vec()])), "FORMERR; edns");
}

/// An OPT record up to the length of its options.
const OPT: [u8; 9] = [0, 0, 41, 4, 208, 0, 0, 0, 0];

/// A question with OPT records that have these options.
fn with_opts(opts: &[Vec<u8>]) -> Ask {
    let mut ask = Ask::from("TXT a.test");
    for options in opts {
        ask.query.extend(OPT);
        ask.query.extend((options.len() as u16).to_be_bytes());
        ask.query.extend(options);
    }
    ask.query[11] = opts.len() as u8;
    ask
}

#[test]
fn wrong_words_of_edns0_are_refused() {
    for (rule, why) in [
        ("edns0", "needs more words"),
        ("edns0 local set 0xffee", "other words"),
        ("edns0 local set 0x1ffff x", "not the code"),
        ("edns0 local set 0xffee 0xabc", "not hexadecimal"),
        ("edns0 local set 0xffee {nonsense}", "no variable"),
        ("edns0 local set 0xffee {geoip/city/name}", "never set"),
        ("edns0 local unset 0xffee x", "other words"),
        ("edns0 subnet set 33 56", "33"),
        ("edns0 other set", "`other` is not accepted"),
        ("edns0 local change 0xffee x", "`change` is not accepted"),
        ("rcode a.test NXDOMAIN", "a name and two codes"),
        ("rcode a.test NXDOMAIN BADVERS", "code of EDNS0"),
        ("rcode a.test NONSENSE NOERROR", "NONSENSE"),
        ("cname a.test", "an old and a new target"),
        ("cname regex (a b.test", "no regular expression"),
        ("cname regex a {1}.test", "no group 1"),
    ] {
        let told = refused(&format!(".:53 {{\nrewrite {rule}\nforward . 192.0.2.53\n}}"));
        assert!(told.contains(why), "{rule}: {told}");
    }
}

#[test]
fn codes_of_answers_are_rewritten() {
    let up = Upstream::with(|query, _: Over| vec![answer(query, &["SERVFAIL"])]);
    let firewall = Firewall::new(&format!(
        ".:53 {{\nrewrite rcode suffix test SERVFAIL NXDOMAIN\nrewrite rcode a.other 2 0\nforward . {}\n}}",
        up.address
    ));
    assert_eq!(firewall.ask("A a.test"), "answer NXDOMAIN");
    assert_eq!(firewall.ask("A a.other"), "answer NOERROR");
    assert_eq!(firewall.ask("A b.other"), "route 0");
}

/// Rules judge where an alias leads to, as they judge what the client asks for.
#[test]
fn s9_3_aliases_lead_elsewhere_through_the_rules() {
    let up = Upstream::with(|query, _: Over| {
        // Upstreams are asked in random letters.
        let name = String::from_utf8_lossy(query).to_ascii_lowercase();
        let lines: &[&str] = if name.contains("www") {
            &["@ 30 CNAME a.cdn.test", "a.cdn.test 30 A 192.0.2.1"]
        } else if name.contains("edge") {
            &["@ 20 A 192.0.2.2"]
        } else {
            &["@ 10 A 192.0.2.3"]
        };
        vec![answer(query, lines)]
    });
    let with = |rules: &str| {
        Firewall::new(&format!(
            ".:53 {{\n{rules}\nrewrite cname suffix cdn.test. edge.test.\nforward . {}\n}}",
            up.address
        ))
    };
    let allowed = with("");
    assert_eq!(
        allowed.ask("A www.test"),
        "answer NOERROR; www.test. 30 CNAME a.edge.test.; a.edge.test. 20 A 192.0.2.2"
    );
    assert_eq!(allowed.ask("A plain.test"), "answer NOERROR; plain.test. 10 A 192.0.2.3");
    let denied = with("firewall query {\nrefuse name == 'a.edge.test.'\ndefault allow\n}");
    assert_eq!(denied.ask("A www.test"), "REFUSED");
    let judged = with("firewall response {\nrefuse response_ip == 192.0.2.2\ndefault allow\n}");
    assert_eq!(judged.ask("A www.test"), "REFUSED");
}
