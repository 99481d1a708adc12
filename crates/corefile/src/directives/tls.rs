//! `tls CERT KEY [CA]`: what `tls://` and `https://` server blocks show to clients, and which clients they accept.

use crate::FileSpan;
use crate::form::{Form, Words, once};
use crate::parse::Line;
use crate::problem::Report;
use crate::values::path;
use std::path::PathBuf;

pub(crate) const TLS: Form =
    once("tls", "CERT KEY [CA] { client_auth nocert|verify_if_given|require_and_verify }", 0, 3);

const ACME: &str = "certificates are not fetched here: write `tls CERT KEY`, and let another program renew the files";

/// An option of `tls`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TlsOption {
    ClientAuth,
}

const OPTIONS: Words<TlsOption> = Words {
    served: &[(TlsOption::ClientAuth, once("client_auth", "nocert|verify_if_given|require_and_verify", 1, 1))],
    not_served: &[
        ("acme", ACME),
        ("ca", ACME),
        ("ca_root", ACME),
        ("email", ACME),
        ("keylog", "remove it: session keys are written nowhere"),
        ("resolver", ACME),
        ("storage", ACME),
    ],
};

/// The certificate of a server block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who must have signed the certificates of clients; those the system trusts, if there is none.
    pub authority: Option<PathBuf>,
    pub client_auth: ClientAuth,
    pub place: FileSpan,
}

/// Which clients may connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    /// All: no certificate is asked for.
    #[default]
    None,
    /// Those without a certificate, and those whose certificate is good.
    VerifyIfGiven,
    /// Those whose certificate is good.
    RequireAndVerify,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Option<ServerTls> {
    let mut client_auth = ClientAuth::default();
    for (TlsOption::ClientAuth, option) in report.options(line, &OPTIONS) {
        let word = &option.args[0];
        if matches!(&*word.text, "request" | "require") {
            report
                .error("not-served", &word.place, format!("`client_auth {}` proves nothing", word.text))
                .help("write `verify_if_given` or `require_and_verify`: then certificates are verified");
            continue;
        }
        let words = [
            ("nocert", ClientAuth::None),
            ("verify_if_given", ClientAuth::VerifyIfGiven),
            ("require_and_verify", ClientAuth::RequireAndVerify),
        ];
        client_auth = report.word(word, &words).unwrap_or_default();
    }
    let [certificate, key, authority @ ..] = &line.args[..] else {
        // What `tls { acme … }` misses has been said.
        if line.lines().is_empty() || !line.args.is_empty() {
            report
                .error("missing-argument", line.place(), "`tls` needs a certificate and its key")
                .help("write `tls CERT KEY`, with the paths of files in PEM");
        }
        return None;
    };
    let authority = authority.first().map(path);
    if let (Some(_), ClientAuth::None) = (&authority, client_auth) {
        let why = "the CA has no effect: no certificate is asked for";
        report.hint("no-effect", &line.args[2].place, why).help("write `client_auth require_and_verify`");
    }
    let place = line.place().clone();
    Some(ServerTls { certificate: path(certificate), key: path(key), authority, client_auth, place })
}
