//! Panics of handlers become values with the message and the place.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

/// What a panic said, and where.
#[derive(Debug)]
pub(crate) struct Panicked(pub(crate) String);

/// Makes panics inside [`catch`] silent and remembered. All others go to the hook that was there before.
///
/// A program that sets a hook of its own later replaces this one; panics are then caught without their place.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !remember(info) {
                previous(info);
            }
        }));
    });
}

/// Runs `act`; a panic in it, on this thread, comes back as a value.
pub(crate) fn catch<T>(act: impl FnOnce() -> T) -> Result<T, Panicked> {
    // What an inner catch of the handler's own left behind belongs to no panic that comes now.
    MESSAGE.take();
    let outer = CATCHING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(act));
    CATCHING.set(outer);
    result.map_err(|payload| {
        let remembered = MESSAGE.take();
        // From another thread, where it was caught by this module already.
        let payload = match payload.downcast::<Panicked>() {
            Ok(panicked) => return *panicked,
            Err(payload) => payload,
        };
        let text = remembered.unwrap_or_else(|| message(&*payload).to_owned());
        // The payload is the handler's, and its destructor may panic as well.
        if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        Panicked(text)
    })
}

thread_local! {
    /// Whether this thread is inside [`catch`].
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    /// The newest panic of this thread inside [`catch`].
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the text of a panic inside [`catch`]; `false` for any other.
fn remember(info: &PanicHookInfo<'_>) -> bool {
    // `try_with`: a panic may come from a destructor of another thread-local.
    if !CATCHING.try_with(Cell::get).unwrap_or(false) {
        return false;
    }
    let text = message(info.payload());
    let text = match info.location() {
        Some(place) => format!("{text} at {}:{}", place.file(), place.line()),
        None => text.to_owned(),
    };
    MESSAGE.try_with(|kept| kept.replace(Some(text))).is_ok()
}

fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_and_the_place_come_back() {
        install();
        let line = line!();
        let Panicked(text) = catch(|| assert_eq!(line, 0, "boom {}", 7)).unwrap_err();
        assert!(text.contains("boom 7"), "{text}");
        assert!(text.ends_with(&format!(" at {}:{}", file!(), line + 1)), "{text}");
        assert!(catch(|| 5).is_ok_and(|five| five == 5));
    }

    #[test]
    fn odd_payloads_are_survived() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("the payload itself");
            }
        }
        install();
        let throw: fn() = || panic::panic_any(Bomb);
        let Panicked(text) = catch(throw).unwrap_err();
        assert!(text.starts_with("a panic without a message at "), "{text}");
    }

    #[test]
    fn panics_of_other_threads_go_to_the_previous_hook() {
        install();
        let inner = catch(|| std::thread::spawn(|| panic!("elsewhere")).join().is_err());
        assert!(inner.is_ok_and(|panicked| panicked));
        assert!(MESSAGE.take().is_none());
    }
}
