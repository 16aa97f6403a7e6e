use crate::cron_expression::Cron;

impl Cron {
    /// A sentence in plain words, without a dot at its end.
    pub fn describe(&self) -> String {
        format!("at {self}")
    }
}
