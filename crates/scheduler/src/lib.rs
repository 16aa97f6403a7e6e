//! When a periodic job is due.
//!
//! Everything here is a pure function of the instants that are passed in: no clock is read and nothing is stored, so each rule
//! can be tested by calling it. Storing schedules and firing them is done elsewhere, on top of this.
//!
//! * [`Cron`]: an expression such as `0 9 * * Mon-Fri`, with [`Cron::describe`] to say it in plain words.
//! * [`Zone`]: the time zone in which an expression is meant, by its IANA name.
//! * [`Every`]: a fixed interval, counted from an instant.
//! * [`Timetable`]: one of the two, which gives its [`Fire`]s.
//!
//! ```
//! use celeriac_core::Timestamp;
//! use celeriac_scheduler::{Cron, Moved, Timetable, Zone};
//!
//! let timetable = Timetable::Cron(Cron::parse("30 2 * * *")?, Zone::parse("Europe/Berlin")?);
//! let evening = Timestamp::parse_rfc3339("2027-03-27T20:00:00Z")?;
//! // On 28 March 2027 the clocks go from 02:00 to 03:00: half past two does not exist.
//! let fire = timetable.next_after(evening).ok_or("no fire")?;
//! assert_eq!(fire.local, "2027-03-28T03:00:00+02:00");
//! assert_eq!(fire.moved, Moved::Gap);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The language
//!
//! Five fields as in Unix: minutes, hours, days of the month, months, weekdays. A sixth in front counts seconds. Names
//! (`Jan`, `Mon`), lists (`1,15`), ranges (`9-17`), ranges that wrap (`22-2`, `Fri-Mon`), steps (`*/5`, `9-17/2`); `L` for the last
//! day of the month, `15W` for the workday nearest to the 15th, `LW` for the last workday; `5L` for the last Friday, `Fri#2` for the
//! second; `@hourly`, `@daily` and their like. Weekdays count from Monday = 1; 0 and 7 are both Sunday.
//!
//! **Both day fields.** As in the source of Vixie's cron: when neither day field starts with `*`, a day that matches *either*
//! fires; when one of them starts with `*`, a day must match *both*. So `0 0 1 * Mon` fires on every first and on every Monday,
//! and `0 0 */2 * Mon` on the Mondays that have an odd date.
//!
//! # Clock changes
//!
//! An expression whose minutes or hours start with `*` follows real time, as in Vixie's cron: it fires whenever the clock on
//! the wall shows a matching time. In the hour that is skipped it does not fire, in the hour that is repeated it fires twice.
//!
//! Any other expression names its times, and each named time fires exactly once: a time that is skipped fires at the first
//! instant after the gap ([`Moved::Gap`]), a time that is repeated fires when it comes for the first time ([`Moved::Fold`]). Named times that
//! a gap moves to the same instant are one fire.

#![deny(rustdoc::broken_intra_doc_links, rustdoc::bare_urls)]

mod calendar;
mod cron_error;
mod cron_expression;
mod describe;
mod every;
mod field;
mod item;
mod timetable;
mod zone;

pub use cron_error::CronError;
pub use cron_expression::Cron;
pub use every::{Every, EveryError};
pub use field::Field;
pub use timetable::{Fire, Moved, NeverFires, Timetable};
pub use zone::{Zone, ZoneError};
