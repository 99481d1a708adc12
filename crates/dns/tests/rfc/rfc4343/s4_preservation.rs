//! RFC 4343 §4: the case of a name is kept on output, so that clients that hide a nonce in it
//! ("0x20") find it again.

use crate::stub::{Client, Recorder, Upstream, answer, id, query, serve, settings};
use std::sync::Arc;

#[test]
fn a_client_finds_the_case_of_its_question_again() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), Arc::new(Recorder::default()));
    let client = Client::of(&server);
    for name in ["www.example", "WWW.EXAMPLE", "wWw.eXaMpLe"] {
        let asked = query(7, name);
        assert_eq!(client.ask(&asked).unwrap(), answer(&asked, &[[192, 0, 2, 1]], 30));
    }
}

/// An upstream that answers in another case is believed over TCP alone. The client gets its own spelling.
#[test]
fn s6_1_an_answer_in_another_case_is_the_same_questions() {
    let upstream = Upstream::new(|asked| {
        let lower = query(id(asked), "www.example");
        vec![answer(&lower, &[[192, 0, 2, 1]], 30)]
    });
    let recorder = Arc::new(Recorder::default());
    let server = serve(settings(&[&upstream]), recorder.clone());
    let asked = query(7, "wWw.ExAmPlE");
    let reply = Client::of(&server).ask(&asked).unwrap();
    assert_eq!(reply, answer(&asked, &[[192, 0, 2, 1]], 30));
    assert_eq!(recorder.addresses().len(), 1);
}
