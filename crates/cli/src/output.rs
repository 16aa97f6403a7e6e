use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::table::Table;

/// For whom the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Text,
}

/// Where results go. Every write can fail and none panics: `celeriac jobs list | head` closes the pipe early.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    colour: Colour,
    writer: BufWriter<Stdout>,
}

/// Whether text may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Off,
    On,
}

/// What a piece of text means, for colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Bad,
    Heading,
    Plain,
    Warning,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, colour: Colour::of_stdout(), writer: BufWriter::new(io::stdout()) }
    }

    pub(crate) const fn is_json(&self) -> bool {
        matches!(self.format, Format::Json)
    }

    pub(crate) const fn writer(&mut self) -> &mut BufWriter<Stdout> {
        &mut self.writer
    }

    /// One JSON document on one line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(value)
            .map_err(|error| Failure::failed("output", format!("cannot write JSON: {error}")))?;
        line.push(b'\n');
        self.writer.write_all(&line)?;
        Ok(())
    }

    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        writeln!(self.writer, "{text}")?;
        Ok(())
    }

    pub(crate) fn heading(&mut self, text: &str) -> Result<(), Failure> {
        let text = Tone::Heading.paint(text, self.colour);
        self.line(text)
    }

    pub(crate) fn table(&mut self, table: &Table) -> Result<(), Failure> {
        table.write(&mut self.writer, self.colour)?;
        Ok(())
    }

    pub(crate) fn painted(&self, tone: Tone, text: &str) -> String {
        tone.paint(text, self.colour)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush()?;
        Ok(())
    }

    /// Tells of a failure on the error output, in this output's format.
    pub(crate) fn complain(&mut self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        // What was written before is seen before. If that fails, the end of the program will say so.
        let _ = self.writer.flush();
        let line = match self.format {
            Format::Json => serde_json::to_string(&failure.json()).unwrap_or_default(),
            Format::Text => format!("error: {}", printable(&failure.text(), Lines::Keep)),
        };
        // If the error output is closed, there is nobody to tell.
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Tells people something beside the result; programs are not told.
    pub(crate) fn remark(&mut self, text: impl Display) {
        if !self.is_json() {
            let _ = self.writer.flush();
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

impl Colour {
    fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if wanted && io::stdout().is_terminal() { Self::On } else { Self::Off }
    }
}

impl Tone {
    pub(crate) fn paint(self, text: &str, colour: Colour) -> String {
        let code = match (colour, self) {
            (Colour::Off, _) | (_, Self::Plain) => return text.to_owned(),
            (Colour::On, Self::Heading) => "1",
            (Colour::On, Self::Bad) => "31",
            (Colour::On, Self::Warning) => "33",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Whether line breaks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// They are.
    Keep,
    /// Everything goes on one line.
    Join,
}

/// Text from a job as a terminal may see it: errors and headers are written by others and may hold control
/// sequences.
pub(crate) fn printable(text: &str, lines: Lines) -> String {
    text.chars()
        .map(|c| match c {
            '\n' if lines == Lines::Keep => c,
            '\n' | '\r' | '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// At most `width` characters of `text`, on one line, with a mark if it was cut.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let line = printable(text, Lines::Join);
    if line.chars().count() <= width {
        return line;
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n\u{9b}c", Lines::Keep), "a\u{fffd}[31mb\n\u{fffd}c");
        assert_eq!(printable("a\nb\tc\r", Lines::Join), "a b c ");
    }

    #[test]
    fn long_text_is_cut_with_a_mark() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("äbcdefg", 6), "äbcde…");
    }

    #[test]
    fn colour_is_an_addition_only() {
        assert_eq!(Tone::Bad.paint("x", Colour::Off), "x");
        assert_eq!(Tone::Bad.paint("x", Colour::On), "\u{1b}[31mx\u{1b}[0m");
    }
}
