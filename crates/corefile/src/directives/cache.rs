//! `cache [TTL] [ZONE…] { … }`: what is kept of answers.

use crate::Zone;
use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use std::time::Duration;

pub(crate) const CACHE: Form = once("cache", "[TTL] [ZONE…] { … }", 0, ANY);

/// An option of `cache`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CacheOption {
    Success,
    Denial,
    Prefetch,
    ServeStale,
    ServFail,
    Disable,
    KeepTtl,
}

const OPTIONS: Words<CacheOption> = Words {
    served: &[
        (CacheOption::Success, once("success", "CAPACITY [TTL] [MINTTL]", 1, 3)),
        (CacheOption::Denial, once("denial", "CAPACITY [TTL] [MINTTL]", 1, 3)),
        (CacheOption::Prefetch, once("prefetch", "AMOUNT [DURATION [PERCENTAGE%]]", 1, 3)),
        (CacheOption::ServeStale, once("serve_stale", "[DURATION] [immediate|verify]", 0, 2)),
        (CacheOption::ServFail, once("servfail", "DURATION", 1, 1)),
        (CacheOption::Disable, many("disable", "success|denial [ZONE…]", 1, ANY)),
        (CacheOption::KeepTtl, once("keepttl", "", 0, 0)),
    ],
    not_served: &[],
};

/// Answers may fail for no longer (RFC 2308 §7.1).
const LONGEST_FAILURE: Duration = Duration::from_secs(300);

#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// Empty is all of the server's.
    pub zones: Vec<Zone>,
    pub success: Share,
    pub denial: Share,
    pub prefetch: Option<Prefetch>,
    pub serve_stale: Option<ServeStale>,
    /// How long a failure is kept.
    pub servfail: Duration,
    /// Zones of which nothing is kept.
    pub no_success: Vec<Zone>,
    pub no_denial: Vec<Zone>,
    /// Whether TTLs are told as they came.
    pub keep_ttl: bool,
}

/// What is kept of answers of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    pub capacity: u32,
    pub ttl: Duration,
    pub min_ttl: Duration,
}

/// What is asked `amount` times within a duration is asked again before it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefetch {
    pub amount: u32,
    pub within: Duration,
    /// Of its TTL that is left.
    pub percentage: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeStale {
    pub up_to: Duration,
    /// Whether the upstream is asked first.
    pub verify: bool,
}

impl Share {
    const fn lasting(seconds: u64) -> Self {
        Self { capacity: 9984, ttl: Duration::from_secs(seconds), min_ttl: Duration::from_secs(5) }
    }

    fn set(&mut self, args: &[Token], report: &mut Report) {
        self.capacity = report.number(&args[0], 0..=u32::MAX).unwrap_or(self.capacity);
        self.ttl = args.get(1).and_then(|ttl| report.seconds(ttl, 1..=u32::MAX)).unwrap_or(self.ttl);
        self.min_ttl = args.get(2).and_then(|ttl| report.seconds(ttl, 0..=u32::MAX)).unwrap_or(self.min_ttl);
    }
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Cache {
    let mut cache = Cache {
        zones: Vec::new(),
        success: Share::lasting(3600),
        denial: Share::lasting(1800),
        prefetch: None,
        serve_stale: None,
        servfail: Duration::from_secs(5),
        no_success: Vec::new(),
        no_denial: Vec::new(),
        keep_ttl: false,
    };
    let is_number = |word: &Token| word.text.bytes().all(|byte| byte.is_ascii_digit()) && !word.text.is_empty();
    let zones = match line.args.split_first() {
        Some((ttl, zones)) if is_number(ttl) => {
            if let Some(ttl) = report.seconds(ttl, 1..=u32::MAX) {
                (cache.success.ttl, cache.denial.ttl) = (ttl, ttl);
            }
            zones
        }
        _ => &line.args[..],
    };
    cache.zones = report.zones(zones);
    for (option, line) in report.options(line, &OPTIONS) {
        cache.set(option, &line.args, report);
    }
    cache
}

impl Cache {
    fn set(&mut self, option: CacheOption, args: &[Token], report: &mut Report) {
        match option {
            CacheOption::Success => self.success.set(args, report),
            CacheOption::Denial => self.denial.set(args, report),
            CacheOption::Prefetch => self.prefetch = prefetch(args, report),
            CacheOption::ServeStale => {
                let up_to = args.first().map_or(Some(Duration::from_secs(3600)), |word| report.duration(word));
                let modes = [("immediate", false), ("verify", true)];
                let verify = args.get(1).and_then(|word| report.word(word, &modes)).unwrap_or(false);
                self.serve_stale = up_to.map(|up_to| ServeStale { up_to, verify });
            }
            CacheOption::ServFail => {
                if let Some(duration) = report.duration(&args[0]) {
                    if duration > LONGEST_FAILURE {
                        report
                            .error("bad-duration", &args[0].place, "a failure is kept for 5 minutes at most")
                            .help("RFC 2308 has it so");
                    }
                    self.servfail = duration;
                }
            }
            CacheOption::Disable => {
                let zones = report.fallthrough(&args[1..]);
                match report.word(&args[0], &[("success", true), ("denial", false)]) {
                    Some(true) => self.no_success = zones,
                    Some(false) => self.no_denial = zones,
                    None => {}
                }
            }
            CacheOption::KeepTtl => self.keep_ttl = true,
        }
    }
}

fn prefetch(args: &[Token], report: &mut Report) -> Option<Prefetch> {
    let amount = report.number(&args[0], 0..=u32::MAX)?;
    let within = args.get(1).map_or(Some(Duration::from_secs(60)), |word| report.duration(word))?;
    let percentage = match args.get(2) {
        None => 10,
        Some(word) => {
            let number = word.text.strip_suffix('%').and_then(|number| number.parse::<u32>().ok());
            let Some(percentage) = number.filter(|percentage| (10..=90).contains(percentage)) else {
                report
                    .error("bad-number", &word.place, format!("`{}` is not accepted here", word.text))
                    .help("write 10% to 90%");
                return None;
            };
            percentage
        }
    };
    Some(Prefetch { amount, within, percentage })
}
