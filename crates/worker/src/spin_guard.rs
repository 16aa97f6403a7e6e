use std::time::Duration;

/// Slows down a worker whose waits keep ending at once for nothing.
///
/// A wait may end early for any reason, such as a commit of another process. Waking for nothing now and then is
/// cheap and must not delay the next real job; doing so without end would take a whole core.
#[derive(Debug, Default)]
pub(crate) struct SpinGuard {
    in_vain: u32,
}

impl SpinGuard {
    /// A claim found something.
    pub(crate) const fn found(&mut self) {
        self.in_vain = 0;
    }

    /// A claim found nothing after a wait of `waited`. Gives the pause before the next wait.
    pub(crate) fn nothing(&mut self, waited: Duration) -> Duration {
        if waited >= QUICK {
            self.in_vain = 0;
            return Duration::ZERO;
        }
        self.in_vain = self.in_vain.saturating_add(1);
        if self.in_vain <= FREE {
            return Duration::ZERO;
        }
        Duration::from_millis(1 << (self.in_vain - FREE - 1).min(16)).min(LONGEST)
    }
}

/// A wait that lasted this long is no spinning, whatever ended it.
const QUICK: Duration = Duration::from_millis(10);

/// So many quick waits in a row are free.
const FREE: u32 = 3;

/// The longest pause: a tenth of the wait's own limit.
const LONGEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_waits_are_in_vain_and_end_with_a_find() {
        let mut guard = SpinGuard::default();
        let pauses: Vec<u128> = (0..12).map(|_| guard.nothing(Duration::ZERO).as_millis()).collect();
        assert_eq!(pauses, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 100, 100]);
        guard.found();
        assert_eq!(guard.nothing(Duration::ZERO), Duration::ZERO);
        for _ in 0..9 {
            guard.nothing(Duration::ZERO);
        }
        assert_eq!(guard.nothing(Duration::from_millis(20)), Duration::ZERO);
        assert_eq!(guard.nothing(Duration::ZERO), Duration::ZERO);
    }
}
