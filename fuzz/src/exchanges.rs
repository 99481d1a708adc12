//! Sequences of questions, replies, timers and reloads: whatever comes, a client gets replies to its own questions
//! alone, every question ends, and nothing is left behind.

pub fn exchanges(bytes: &[u8]) {
    namewall_dns::testing::play(bytes);
}
