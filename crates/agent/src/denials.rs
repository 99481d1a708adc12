//! Denied packets, as far as the kernel logs them.

use crate::error::{AgentError, with_causes};
use namewall_dataplane::{Denied, FollowDenials, Told};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// How long to wait before the log is opened again, first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How many there were.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    pub(crate) enforced: AtomicU64,
    /// What audited policies would deny.
    pub(crate) audited: AtomicU64,
    /// Lines of the kernel's log that nobody read in time.
    pub(crate) lost: AtomicU64,
    /// How often the kernel's log could not be read or opened. Nobody knows how many lines it had meanwhile.
    pub(crate) failures: AtomicU64,
    /// Why the log is not read now.
    failure: Mutex<Option<String>>,
}

impl Denials {
    pub(crate) fn total(&self) -> u64 {
        self.enforced.load(Ordering::Relaxed) + self.audited.load(Ordering::Relaxed)
    }
}

impl Denials {
    /// Why the kernel's log of the node is not read now; None if it is.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, error: &dyn Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let error = with_causes(error);
        let before = self.failure.lock().unwrap_or_else(PoisonError::into_inner).replace(error.clone());
        // It is tried again and again, and said once.
        if before.is_none() {
            warn!(error, "denials are not logged: the kernel's log of them cannot be read; it is opened again");
        }
    }

    fn works_again(&self) {
        if self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            let failures = self.failures.load(Ordering::Relaxed);
            warn!(failures, "denials are logged again; those of the time before are not in the log");
        }
    }

    /// Logs and counts what the kernel has told: of the node, or of a pod's second interfaces.
    pub(crate) fn take(&self, told: Told, pod: Option<&str>) {
        let Told { denials, lost } = told;
        if lost > 0 {
            self.lost.fetch_add(lost, Ordering::Relaxed);
            warn!(lost, pod, "denials are missing from the log: the kernel logged more than was read in time");
        }
        for Denied { enforced, source, destination, port, protocol, rule, .. } in denials {
            let (what, counter) = match enforced {
                true => ("denied", &self.enforced),
                false => ("would deny", &self.audited),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            match pod {
                Some(pod) => info!(pod, %source, %destination, port, %protocol, rule, "{what} on a second interface"),
                None => info!(%source, %destination, port, %protocol, rule, "{what}"),
            }
        }
    }
}

/// Logs and counts denials in a thread of its own, for as long as somebody has the counts.
pub(crate) fn follow(log: impl FollowDenials, count: &Arc<Denials>) -> Result<(), AgentError> {
    let count = Arc::downgrade(count);
    let follow = move || follow_by(log, &count, thread::sleep);
    thread::Builder::new().name("denials".to_owned()).spawn(follow).map_err(AgentError::Thread)?;
    Ok(())
}

/// A log that fails is opened again, after a pause that grows until lines are read.
fn follow_by(mut log: impl FollowDenials, count: &Weak<Denials>, mut pause: impl FnMut(Duration)) {
    let mut wait = FIRST_PAUSE;
    loop {
        let told = log.wait();
        let Some(denials) = count.upgrade() else { return };
        match told {
            Ok(told) => {
                wait = FIRST_PAUSE;
                denials.take(told, None);
                continue;
            }
            Err(error) => denials.fail(&error),
        }
        drop(denials);
        loop {
            pause(wait);
            wait = (wait * 2).min(LONGEST_PAUSE);
            let opened = log.reopen();
            let Some(denials) = count.upgrade() else { return };
            match opened {
                Ok(()) => {
                    denials.works_again();
                    break;
                }
                Err(error) => denials.fail(&error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_dataplane::netlink;
    use namewall_policy::port::Protocol;
    use nix::errno::Errno;
    use std::collections::VecDeque;
    use std::sync::MutexGuard;

    /// What `wait` and `reopen` return, in order. At its end the counts are dropped, which ends the following.
    struct Script {
        steps: VecDeque<Step>,
        count: Option<Arc<Denials>>,
        failures: Vec<(u64, bool)>,
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Line,
        Fails,
        Opens,
        DoesNotOpen,
    }

    impl Script {
        fn next(&mut self) -> Option<Step> {
            if let Some(count) = &self.count {
                self.failures.push((count.failures.load(Ordering::Relaxed), count.failure().is_some()));
            }
            let next = self.steps.pop_front();
            if next.is_none() {
                self.count = None;
            }
            next
        }
    }

    fn error() -> netlink::Error {
        netlink::Error::Receive(Errno::ENOMEM)
    }

    /// A log that does what the script says.
    #[derive(Clone, Copy)]
    struct Scripted(&'static Mutex<Script>);

    impl Scripted {
        fn new(steps: VecDeque<Step>, count: Arc<Denials>) -> Self {
            let script = Script { steps, count: Some(count), failures: Vec::new() };
            Self(Box::leak(Box::new(Mutex::new(script))))
        }

        fn script(self) -> MutexGuard<'static, Script> {
            self.0.lock().expect("nothing panics")
        }
    }

    impl FollowDenials for Scripted {
        type Error = netlink::Error;

        fn wait(&mut self) -> Result<Told, netlink::Error> {
            match self.script().next() {
                Some(Step::Line) => {
                    let [source, destination] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
                    let (rule, protocol) = (String::new(), Protocol::Tcp);
                    let denied = Denied { enforced: true, rule, source, destination, protocol, port: 1 };
                    Ok(Told { denials: vec![denied], lost: 0 })
                }
                Some(Step::Fails) | None => Err(error()),
                Some(step) => panic!("a log is only opened after it has failed: {step:?}"),
            }
        }

        fn reopen(&mut self) -> Result<(), netlink::Error> {
            match self.script().next() {
                Some(Step::Opens) => Ok(()),
                Some(Step::DoesNotOpen) | None => Err(error()),
                Some(step) => panic!("a log that has failed is not waited for: {step:?}"),
            }
        }
    }

    #[test]
    fn a_log_that_fails_is_opened_again_counted_and_reported() {
        use Step::{DoesNotOpen, Fails, Line, Opens};
        let count = Arc::new(Denials::default());
        let weak = Arc::downgrade(&count);
        let mut steps: VecDeque<Step> = [Line, Fails, Opens, Line, Fails, DoesNotOpen, DoesNotOpen, Opens].into();
        steps.extend([Fails, Opens, Line]);
        let log = Scripted::new(steps, count);
        let (mut pauses, mut totals) = (Vec::new(), Vec::new());
        follow_by(log, &weak, |pause| {
            totals.push(weak.upgrade().map_or(0, |count| count.total()));
            pauses.push(pause.as_millis());
        });
        assert_eq!(pauses, [100, 100, 200, 400, 800], "it begins anew after a line, and only then");
        assert_eq!(totals, [1, 2, 2, 2, 2]);
        let at_each_step = [
            (0, false),
            (0, false),
            (1, true),
            (1, false),
            (1, false),
            (2, true),
            (3, true),
            (4, true),
            (4, false),
            (5, true),
            (5, false),
            (5, false),
        ];
        assert_eq!(log.script().failures, at_each_step);
    }

    #[test]
    fn the_pause_does_not_grow_without_end() {
        let count = Arc::new(Denials::default());
        let weak = Arc::downgrade(&count);
        let steps = std::iter::once(Step::Fails).chain([Step::DoesNotOpen; 20]).collect();
        let mut longest = Duration::ZERO;
        follow_by(Scripted::new(steps, count), &weak, |pause| longest = longest.max(pause));
        assert_eq!(longest, LONGEST_PAUSE);
    }
}
