//! What goes to stdout.

use super::args::Format;
use super::exit::Exit;
use super::report::Report;
use std::io::{self, Write};

/// The command's stdout. Who closes it early (`handfast list | head -1`) has seen enough: that is no failure.
#[derive(Debug)]
pub struct Output {
    format: Format,
    wrote: bool,
    failed: Option<io::Error>,
}

impl Output {
    pub(super) fn new(format: Format) -> Self {
        Self { format, wrote: false, failed: None }
    }

    /// The form asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints a report in the form asked for.
    pub fn report(&mut self, report: &Report) {
        let mut bytes = Vec::new();
        let written = match self.format {
            Format::Text => report.write_text(&mut bytes),
            Format::Json => report.write_json(&mut bytes),
        };
        self.put(written.map(|()| bytes));
    }

    /// Prints what a transaction's outcome is: the word, or the object.
    pub fn outcome(&mut self, report: &Report) {
        match self.format {
            Format::Text => self.text(&format!("{}\n", report.outcome())),
            Format::Json => self.report(report),
        }
    }

    /// Prints a JSON object.
    pub fn json(&mut self, value: &impl serde::Serialize) {
        let bytes = serde_json::to_vec_pretty(value).map_err(io::Error::from);
        self.put(bytes.map(|bytes| [&bytes[..], b"\n"].concat()));
    }

    /// Prints lines of text.
    pub fn text(&mut self, text: &str) {
        self.put(Ok(text.as_bytes().to_vec()));
    }

    fn put(&mut self, bytes: io::Result<Vec<u8>>) {
        self.wrote = true;
        let mut stdout = io::stdout().lock();
        let written = bytes.and_then(|bytes| stdout.write_all(&bytes)).and_then(|()| stdout.flush());
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.failed.get_or_insert(error);
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
