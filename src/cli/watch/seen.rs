//! What the last look showed, in the forms in which it is asked for.

use crate::cli::exit::Exit;
use crate::cli::report::Report;
use crate::id::{NodeName, ParticipantName};
use crate::telemetry::{METRICS, MetricKind, names};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One look.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub exit: Exit,
    in_doubt: usize,
    damaged: usize,
    unsettled: usize,
    participants: Vec<Participant>,
}

#[derive(Debug)]
struct Participant {
    name: String,
    reachable: bool,
    room: Option<u64>,
}

impl Look {
    pub fn of(report: &Report<'_>) -> Self {
        let participants = report.participants.iter();
        Self {
            exit: report.status,
            in_doubt: report.in_doubt(),
            damaged: report.damaged(),
            unsettled: report.unsettled.len(),
            participants: participants
                .map(|one| Participant { name: one.name.clone(), reachable: one.reachable, room: None })
                .collect(),
        }
    }

    /// Whether a participant answered.
    pub fn reached(&self, name: ParticipantName) -> bool {
        self.participants.iter().any(|one| one.name == name.as_str() && one.reachable)
    }

    pub fn has_room(&mut self, name: ParticipantName, room: Option<u64>) {
        for one in self.participants.iter_mut().filter(|one| one.name == name.as_str()) {
            one.room = room;
        }
    }

    /// Whether every participant can be worked with, and the journal.
    fn is_ready(&self) -> bool {
        self.participants.iter().all(|one| one.reachable)
            && matches!(self.exit, Exit::Clean | Exit::InDoubt | Exit::Damaged)
    }
}

/// The last look, for whoever asks.
pub(super) struct Seen {
    node: NodeName,
    /// A look that takes longer is stuck.
    patience: Duration,
    last: Mutex<(Instant, Option<Look>)>,
}

impl Seen {
    pub fn nothing(node: NodeName, patience: Duration) -> Self {
        Self { node, patience, last: Mutex::new((Instant::now(), None)) }
    }

    pub fn tell(&self, look: Look) {
        *self.last() = (Instant::now(), Some(look));
    }

    fn last(&self) -> MutexGuard<'_, (Instant, Option<Look>)> {
        // It is replaced as a whole.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the watch itself is at work, and a word.
    pub fn health(&self) -> (bool, &'static str) {
        let is_alive = self.last().0.elapsed() < self.patience;
        (is_alive, if is_alive { "watching" } else { "stuck" })
    }

    /// Whether transactions can be worked with, and the status word.
    pub fn readiness(&self) -> (bool, &'static str) {
        match &self.last().1 {
            Some(look) => (look.is_ready(), look.exit.as_str()),
            None => (false, "not looked yet"),
        }
    }

    /// The figures in Prometheus' text format.
    pub fn figures(&self) -> String {
        let mut text = String::new();
        let (node, last) = (self.node, self.last());
        let Some(look) = &last.1 else { return text };
        let bridge = |value: usize| vec![(format!("node=\"{node}\""), value.to_string())];
        let at = |value: &dyn Fn(&Participant) -> Option<String>| {
            let all = look.participants.iter().filter_map(|one| Some((one, value(one)?)));
            all.map(|(one, value)| (format!("node=\"{node}\",participant=\"{}\"", one.name), value)).collect()
        };
        let reachable = |one: &Participant| Some(u8::from(one.reachable).to_string());
        let room = |one: &Participant| one.room.map(|room| room.to_string());
        // Of a look that came to nothing the counts are not known: nothing is better than a zero.
        if look.is_ready() || look.exit == Exit::Unreachable {
            write(&mut text, names::IN_DOUBT, bridge(look.in_doubt));
            write(&mut text, names::DAMAGED, bridge(look.damaged));
            write(&mut text, names::UNSETTLED, bridge(look.unsettled));
        }
        write(&mut text, names::REACHABLE, at(&reachable));
        write(&mut text, names::PREPARED_ROOM, at(&room));
        text
    }
}

/// One figure with its lines.
fn write(text: &mut String, name: &str, lines: Vec<(String, String)>) {
    let Some(metric) = METRICS.iter().find(|metric| metric.name == name) else { return };
    debug_assert_eq!(metric.kind, MetricKind::Gauge, "what is seen from outside is as of now");
    if lines.is_empty() {
        return;
    }
    // Into a string nothing fails.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} gauge", metric.help);
    for (labels, value) in lines {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}
