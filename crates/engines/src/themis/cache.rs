//! Answers by the bytes of their requests, for a while, within bounds.

use super::codec::Response;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer is good for, and how many bytes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSettings {
    pub ttl: Duration,
    pub bytes: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(600), bytes: 64 << 20 }
    }
}

/// What an entry weighs besides its texts.
const ENTRY: usize = 256;

#[derive(Debug)]
pub(super) struct Cache {
    settings: CacheSettings,
    /// Clients choose the keys: they are hashed with a secret.
    answers: HashMap<Arc<[u8]>, Entry>,
    /// The oldest first.
    order: VecDeque<(Instant, Arc<[u8]>)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    since: Instant,
    response: Arc<Response>,
    weight: usize,
}

impl Cache {
    pub(super) fn new(settings: CacheSettings) -> Self {
        Self { settings, answers: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn get(&self, request: &[u8], now: Instant) -> Option<Arc<Response>> {
        let entry = self.answers.get(request)?;
        (now.saturating_duration_since(entry.since) < self.settings.ttl).then(|| entry.response.clone())
    }

    pub(super) fn put(&mut self, request: &[u8], response: Arc<Response>, now: Instant) {
        let weight = ENTRY + 2 * request.len() + weight(&response);
        // What many asked for at once is kept once.
        if weight > self.settings.bytes || self.get(request, now).is_some() {
            return;
        }
        let key: Arc<[u8]> = request.into();
        if let Some(old) = self.answers.insert(key.clone(), Entry { since: now, response, weight }) {
            self.bytes -= old.weight;
        }
        self.bytes += weight;
        self.order.push_back((now, key));
        self.shrink(now);
    }

    fn shrink(&mut self, now: Instant) {
        while let Some((since, key)) = self.order.front() {
            let is_old = now.saturating_duration_since(*since) >= self.settings.ttl;
            if !is_old && self.bytes <= self.settings.bytes {
                return;
            }
            // One that was old and is known anew stands here a second time.
            if self.answers.get(key).is_some_and(|entry| entry.since == *since)
                && let Some(entry) = self.answers.remove(key)
            {
                self.bytes -= entry.weight;
            }
            self.order.pop_front();
        }
    }
}

fn weight(response: &Response) -> usize {
    let obligations = response.obligations.iter();
    response.status.len()
        + obligations.map(|attribute| 128 + attribute.name.len() + attribute.value.to_string().len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::themis::codec::Effect;

    fn response() -> Arc<Response> {
        Arc::new(Response { effect: Effect::Permit, status: String::new(), obligations: Vec::new() })
    }

    #[test]
    fn answers_are_good_for_their_time_only() {
        let mut cache = Cache::new(CacheSettings { ttl: Duration::from_secs(10), bytes: 10_000 });
        let start = Instant::now();
        cache.put(b"a", response(), start);
        assert!(cache.get(b"a", start + Duration::from_secs(9)).is_some());
        assert!(cache.get(b"a", start + Duration::from_secs(10)).is_none());
        assert!(cache.get(b"b", start).is_none());
        cache.put(b"b", response(), start + Duration::from_secs(10));
        assert_eq!((cache.answers.len(), cache.order.len()), (1, 1));
    }

    #[test]
    fn its_size_is_bounded_whatever_is_asked() {
        let mut cache = Cache::new(CacheSettings { ttl: Duration::from_secs(10), bytes: 10_000 });
        let now = Instant::now();
        for number in 0..10_000_u32 {
            cache.put(&(number % 5_000).to_le_bytes(), response(), now);
            cache.put(b"the same", response(), now + Duration::from_nanos(number.into()));
        }
        assert!(cache.bytes <= 10_000 && cache.answers.len() < 50, "{}", cache.bytes);
        assert!(cache.order.len() < 100, "{}", cache.order.len());
        cache.put(&[0; 20_000], response(), now);
        assert!(cache.get(&[0; 20_000], now).is_none());
    }
}
