use std::io::{self, Write};

use crate::output::{Colour, Lines, Tone, printable};

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// One cell.
#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Table {
    pub(crate) fn new(headings: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        Self { headings: headings.into_iter().collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn write(&self, writer: &mut impl Write, colour: Colour) -> io::Result<()> {
        let widths: Vec<usize> = (self.headings.iter().enumerate())
            .map(|(column, (heading, _))| {
                let widest = self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max();
                heading.chars().count().max(widest.unwrap_or(0))
            })
            .collect();
        let heading = self.headings.iter().map(|(text, _)| Cell::toned(*text, Tone::Heading)).collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            let mut owed = 0;
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.headings) {
                let free = width - cell.width();
                let (before, after) = match align {
                    Align::Left => (0, free),
                    Align::Right => (free, 0),
                };
                // Spaces are owed to the next cell that is not empty, so that no line ends in any.
                owed += before;
                if !cell.text.is_empty() {
                    line.extend(std::iter::repeat_n(' ', owed));
                    line.push_str(&cell.tone.paint(&cell.text, colour));
                    owed = 0;
                }
                owed += after + 2;
            }
            writeln!(writer, "{line}")?;
        }
        Ok(())
    }
}

impl Cell {
    pub(crate) fn toned(text: impl ToString, tone: Tone) -> Self {
        Self { text: printable(&text.to_string(), Lines::Join), tone }
    }

    /// A number that is a dash when zero, so that what matters stands out.
    pub(crate) fn count(number: u64, tone: Tone) -> Self {
        match number {
            0 => Self::from("-"),
            number => Self::toned(grouped(number), tone),
        }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// A number with its thousands parted: 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_do_not_end_in_spaces() {
        let mut table = Table::new([("NAME", Align::Left), ("JOBS", Align::Right), ("NOTE", Align::Left)]);
        table.row([Cell::from("default"), Cell::count(1234, Tone::Plain), Cell::from("")]);
        table.row([Cell::from("é"), Cell::count(0, Tone::Plain), Cell::from("paused\nnow")]);
        let mut text = Vec::new();
        table.write(&mut text, Colour::Off).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "NAME      JOBS  NOTE\n\
             default  1,234\n\
             é            -  paused now\n"
        );
    }

    #[test]
    fn thousands_are_parted() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"].map(str::to_owned)
        );
    }
}
