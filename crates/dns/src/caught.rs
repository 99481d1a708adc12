//! Bugs in whoever judges a question. Anywhere else a panic had better end the process: what is left of it
//! would look alive and serve nobody. Here it costs one question its answer.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// What it comes to; none if it panics.
pub fn caught<T>(judge: impl FnOnce() -> T) -> Option<T> {
    DEPTH.set(DEPTH.get() + 1);
    let judged = catch_unwind(AssertUnwindSafe(judge));
    DEPTH.set(DEPTH.get() - 1);
    judged.ok()
}

/// Whether somebody goes on after a panic of this thread: for the hook that ends the process otherwise.
pub fn is_caught() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_none_and_all_is_as_before() {
        assert!(!is_caught());
        assert_eq!(caught(|| caught(|| 7)), Some(Some(7)));
        let inner = caught(|| {
            let none: Option<()> = caught(|| panic!("a bug"));
            assert!(none.is_none() && is_caught());
        });
        assert!(inner.is_some() && !is_caught());
    }
}
