//! What goes to stdout.

use super::args::Format;
use super::exit::Exit;
use super::report::{Moment, Report, Style, paragraph};
use std::io::{self, BufWriter, IsTerminal, Write};

/// The command's stdout. Who closes it early (`handfast list | head -1`) has seen enough: that is no failure.
#[derive(Debug)]
pub struct Output {
    format: Format,
    wrote: bool,
    /// Whoever read has gone.
    closed: bool,
    failed: Option<io::Error>,
}

impl Output {
    pub(super) fn new(format: Format) -> Self {
        Self { format, wrote: false, closed: false, failed: None }
    }

    /// The form asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints a report in the form asked for, as it is made: it may be long.
    pub fn report(&mut self, report: &Report<'_>) {
        let format = self.format;
        self.write(|out| match format {
            Format::Text => report.write_text(Style::of_stdout(), out),
            Format::Json => report.write_json(out),
        });
    }

    /// Prints one of many reports: on a terminal in the place of the one before, for programs as one line.
    pub fn glance(&mut self, heading: &str, report: &Report<'_>) {
        let format = self.format;
        self.write(|out| match format {
            Format::Text => {
                if io::stdout().is_terminal() {
                    out.write_all(b"\x1b[H\x1b[2J")?;
                }
                writeln!(out, "{}  {heading}\n", Moment::now())?;
                report.write_text(Style::of_stdout(), out)?;
                writeln!(out)
            }
            Format::Json => {
                serde_json::to_writer(&mut *out, report)?;
                writeln!(out)
            }
        });
    }

    /// Whether nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.closed || self.failed.is_some()
    }

    /// Prints what is known of a transaction, in words of its own where it is text.
    pub fn explanation(
        &mut self,
        report: &Report<'_>,
        text: impl FnOnce(&Report<'_>, &mut dyn Write) -> io::Result<()>,
    ) {
        match self.format {
            Format::Text => self.write(|out| text(report, out)),
            Format::Json => self.report(report),
        }
    }

    /// Prints what a transaction's outcome is: the word, or the object.
    pub fn outcome(&mut self, report: &Report<'_>) {
        match self.format {
            Format::Text => self.text(&format!("{}\n", report.outcome())),
            Format::Json => self.report(report),
        }
    }

    /// Prints a JSON object.
    pub fn json(&mut self, value: &impl serde::Serialize) {
        self.write(|out| {
            serde_json::to_writer_pretty(&mut *out, value)?;
            writeln!(out)
        });
    }

    /// Prints lines of text.
    pub fn text(&mut self, text: &str) {
        self.write(|out| out.write_all(text.as_bytes()));
    }

    /// Prints a sentence, broken between words.
    pub fn paragraph(&mut self, text: &str) {
        self.write(|out| paragraph(text, out));
    }

    fn write(&mut self, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        self.wrote = true;
        let mut stdout = BufWriter::new(io::stdout().lock());
        let written = print(&mut stdout).and_then(|()| stdout.flush());
        drop(stdout);
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            Err(error) => drop(self.failed.get_or_insert(error)),
        }
    }

    /// The exit code in the end. A program that asked for JSON gets its object even if the command failed before it
    /// had anything to report.
    pub(super) fn finish(mut self, exit: Exit, error: Option<String>) -> Exit {
        if self.format == Format::Json && !self.wrote {
            self.report(&Report::without_a_look(exit, error));
        }
        match self.failed {
            Some(error) => {
                eprintln!("handfast: stdout cannot be written: {error}");
                exit.max(Exit::Usage)
            }
            None => exit,
        }
    }
}
