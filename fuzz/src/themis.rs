//! Themis' messages as a server may send them, and its policies as users may
//! write them: what is read can be written again, and what is a policy decides.

use namewall_engines::themis::codec::{read_request, read_response, write_request, write_response};
use namewall_engines::themis::policy::{File, Policies};
use namewall_engines::themis::{Name, Network};

const CONTENT: File<'static> = File {
    name: "content.json",
    text: r#"{"id": "content", "items": {
        "action": {"keys": ["domain"], "type": "string", "data": {"example.com": "deny"}},
        "lists": {"keys": ["string"], "type": "list of strings", "data": {"a": ["a", "b"]}},
        "zone": {"keys": ["network"], "type": "string", "data": {"10.0.0.0/8": "permit"}}
    }}"#,
};

pub fn themis(bytes: &[u8]) {
    let request = read_request(bytes);
    if let Ok(attributes) = &request {
        let written = write_request(attributes, usize::MAX).expect("what was read can be written");
        assert!(written.len() <= bytes.len(), "nothing is made up");
        let again = read_request(&written).expect("what was written can be read");
        // As bytes, in which a number that is none is itself.
        assert_eq!(write_request(&again, usize::MAX).expect("it can again"), written);
    }
    if let Ok(response) = read_response(bytes, 64) {
        let written = write_response(&response).expect("what was read can be written");
        let again = read_response(&written, 64).expect("what was written can be read");
        assert_eq!(write_response(&again).expect("it can again"), written);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = Name::parse(text).map(|name| assert_eq!(name.as_str(), text));
    if let Some(network) = Network::parse(text) {
        assert_eq!(Network::parse(&network.to_string()), Some(network));
    }
    for name in ["policy.yaml", "policy.json"] {
        if let Ok(policies) = Policies::read(File { name, text }, &[CONTENT]) {
            let _ = write_response(&policies.decide(&[]));
        }
    }
    let _ = Policies::read(
        File { name: "policy.yaml", text: "policies: {alg: DenyOverrides, rules: []}" },
        &[File { name: "content.json", text }],
    );
}
