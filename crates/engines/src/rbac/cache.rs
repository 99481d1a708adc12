//! What Kubernetes said lately.

use super::review::Access;
use crate::Judgement;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Judgements, whatever they are, each for the same time. The oldest go first, by age or for room.
#[derive(Debug)]
pub(super) struct Cache {
    ttl: Duration,
    most: usize,
    judgements: HashMap<Access, (Instant, Judgement)>,
    /// As they came. One that came twice is here twice, and its later time counts.
    order: VecDeque<(Instant, Access)>,
}

impl Cache {
    pub(super) fn new(ttl: Duration, most: usize) -> Self {
        Self { ttl, most, judgements: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, access: &Access, now: Instant) -> Option<Judgement> {
        let (since, judgement) = self.judgements.get(access)?;
        self.is_fresh(*since, now).then(|| judgement.clone())
    }

    pub(super) fn put(&mut self, access: Access, judgement: Judgement, now: Instant) {
        if self.ttl.is_zero() || self.most == 0 {
            return;
        }
        while let Some((since, oldest)) = self.order.front()
            && (self.order.len() >= self.most || !self.is_fresh(*since, now))
        {
            if self.judgements.get(oldest).is_some_and(|(kept, _)| kept == since) {
                self.judgements.remove(oldest);
            }
            self.order.pop_front();
        }
        self.order.push_back((now, access.clone()));
        self.judgements.insert(access, (now, judgement));
    }

    fn is_fresh(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) < self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_expression::Outcome;

    fn access(number: usize) -> Access {
        Access { namespace: "shop".into(), service_account: "web".into(), name: format!("{number}.example.") }
    }

    #[test]
    fn judgements_are_kept_for_a_time_and_in_number() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut cache = Cache::new(Duration::from_secs(30), 3);
        let put = |cache: &mut Cache, number, outcome: Outcome, now| cache.put(access(number), outcome.into(), now);
        let get = |cache: &Cache, number, now| cache.get(&access(number), now).map(|judgement| judgement.outcome);
        put(&mut cache, 1, Outcome::Allow, at(0));
        put(&mut cache, 2, Outcome::Undefined, at(10));
        assert_eq!(get(&cache, 1, at(29)), Some(Outcome::Allow));
        assert_eq!(get(&cache, 1, at(30)), None);
        assert_eq!(get(&cache, 2, at(30)), Some(Outcome::Undefined));
        // Asked twice at once: the later one counts, and the earlier one's end does not end it.
        put(&mut cache, 1, Outcome::Block, at(20));
        put(&mut cache, 4, Outcome::Allow, at(35));
        assert_eq!(get(&cache, 1, at(35)), Some(Outcome::Block));
        put(&mut cache, 5, Outcome::Allow, at(36));
        assert_eq!(get(&cache, 2, at(36)), None, "the oldest makes room");
        for number in 0..1000 {
            put(&mut cache, number, Outcome::Allow, at(37));
        }
        assert!(cache.judgements.len() <= 3 && cache.order.len() <= 3);
        put(&mut cache, 1, Outcome::Allow, at(1000));
        assert_eq!((cache.judgements.len(), cache.order.len()), (1, 1));
    }

    #[test]
    fn nothing_is_kept_where_that_is_said() {
        let now = Instant::now();
        for (ttl, most) in [(Duration::ZERO, 3), (Duration::from_secs(1), 0)] {
            let mut cache = Cache::new(ttl, most);
            cache.put(access(1), Outcome::Allow.into(), now);
            assert_eq!(cache.get(&access(1), now), None);
        }
    }
}
