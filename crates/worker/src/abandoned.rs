//! Synchronous handlers that go on after their future was dropped.

use std::cell::Cell;

/// Runs `drop_it` and gives the number of synchronous handlers that it left running.
pub(crate) fn count(drop_it: impl FnOnce()) -> u64 {
    let outer = LEFT.replace(0);
    drop_it();
    LEFT.replace(outer)
}

/// Stands for a running synchronous handler in the future that waits for it.
#[derive(Debug)]
pub(crate) struct Running(bool);

impl Running {
    pub(crate) const fn new() -> Self {
        Self(true)
    }

    /// The handler has returned.
    pub(crate) const fn finished(&mut self) {
        self.0 = false;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0 {
            LEFT.set(LEFT.get() + 1);
        }
    }
}

thread_local! {
    /// Handlers left running by what this thread drops now.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unfinished_handlers_count() {
        let mut finished = Running::new();
        finished.finished();
        let running = Running::new();
        assert_eq!(count(|| drop((finished, running))), 1);
        assert_eq!(count(|| ()), 0);
    }
}
