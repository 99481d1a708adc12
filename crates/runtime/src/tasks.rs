//! Tasks and timers, as an argument.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What runs futures.
pub trait Tasks: Debug + Send + Sync {
    /// Runs a task beside the others until it ends.
    fn spawn(&self, task: BoxFuture<()>);

    fn sleep(&self, time: Duration) -> BoxFuture<()>;
}

/// A future did not end in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOut;

/// Gives up a future that does not end within this time.
pub async fn in_time<T>(tasks: &dyn Tasks, time: Duration, future: impl Future<Output = T>) -> Result<T, TimedOut> {
    let (mut future, mut over) = (pin!(future), tasks.sleep(time));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => over.as_mut().poll(context).map(|()| Err(TimedOut)),
    })
    .await
}
