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
    /// Times a query was asked again, elsewhere or there.
    retries,
    /// Queries no upstream answered in time: SERVFAIL.
    unanswered,
    /// Replies nobody had asked for, or to another question: never passed on (S6.1).
    unasked,
    /// Answers that could not be read; passed on, and nothing learned.
    unreadable,
    /// Answers whose names could not be opened in time: SERVFAIL (S6.6).
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
