//! What happened, for status and tests.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// The answers by response code; there are 16 without extensions.
            pub answers_by_rcode: [u64; 16],
        }

        impl Counters {
            /// Each with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::Add for Counters {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                let mut answers_by_rcode = self.answers_by_rcode;
                answers_by_rcode.iter_mut().zip(other.answers_by_rcode).for_each(|(sum, more)| *sum += more);
                Self { $($name: self.$name + other.$name,)* answers_by_rcode }
            }
        }
    };
}

counters! {
    /// Queries that came in.
    queries,
    /// Answers of an upstream that were passed on.
    answers,
    /// Of these, such as were held until what they open was open.
    held,
    /// Queries that were no queries.
    malformed,
    /// Queries and connections of strangers, where only those who are known may ask.
    strangers,
    /// Queries left out since there were too many, in all or of one client.
    over_limit,
    /// Queries and connections that gave way to another client's, since theirs held most places.
    evicted,
    /// Queries that were not sent, since the same question was under way: they got the answer to that one.
    joined,
    /// Queries that came to one loop and were passed to the one that their names belong to.
    passed,
    /// Times a query was asked again, elsewhere or there.
    retries,
    /// Queries no upstream answered in time: SERVFAIL.
    unanswered,
    /// Replies nobody had asked for, to another question or with another opcode: never passed on (S6.1).
    unasked,
    /// Replies with the right id and question, but not with the letter case that was sent.
    recased,
    /// Queries that were asked again over TCP, since a reply over UDP cannot be trusted: after a reply in another
    /// letter case, or too many replies that nobody had asked for.
    distrusted,
    /// Times an upstream was found, over TCP, not to repeat the letter case of questions: for a while it is asked
    /// without that protection.
    caseless,
    /// Answers that could not be read; passed on, and nothing learned.
    unreadable,
    /// Answers whose addresses could not be opened, or not in time: SERVFAIL (S6.6).
    hold_failed,
    /// The same, passed on all the same since the settings say so.
    hold_released,
    /// Datagrams the kernel would not send.
    unsent,
    /// TCP connections taken.
    connections,
    /// Questions that are not answered yet; this is no sum.
    under_way,
}

impl Counters {
    /// An answer is passed on.
    pub(super) fn answer(&mut self, answer: &[u8]) {
        self.answers += 1;
        if let Some(byte) = answer.get(3) {
            self.answers_by_rcode[usize::from(byte & 15)] += 1;
        }
    }
}
