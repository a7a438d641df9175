//! What is done to whom, and when: from a seed alone.

use super::stage::CLIENTS;
use crate::proxy::{Arm, On};
use crate::servers::Flavor;
use crate::torture::Dice;
use crate::world::{LEDGER, ORDERS};
use handfast::torture::{Moment, Point, Request, Step};
use std::fmt;
use std::time::Duration;

/// Where a client stops by itself: a point, one of the participants or any, and the time that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopAt {
    /// The point.
    pub point: Point,
    /// Any participant, if none.
    pub at: Option<&'static str>,
    /// From 1.
    pub nth: u32,
}

/// As `soak-client` takes it.
impl fmt::Display for StopAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.point, self.at.unwrap_or("any"), self.nth)
    }
}

/// One fault. Servers are counted from 0, PostgreSQL first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; started again at once, perhaps to die by itself at a point of its opening or its work.
    KillClient(usize, Option<StopAt>),
    /// Both at once.
    KillClients,
    /// SIGSTOP for so many milliseconds.
    FreezeClient(usize, u64),
    /// SIGKILL, and started again so many milliseconds later, while other things happen.
    KillServer(usize, u64),
    /// Both servers and all clients.
    KillAll,
    /// SIGSTOP of a server for so many milliseconds.
    FreezeServer(usize, u64),
    /// Closes every connection of a server.
    Sever(usize),
    /// No connection to a server for so many milliseconds.
    Down(usize, u64),
    /// A fault of the network at the n-th statement of a kind: server, statement, n, and which of [`ARMS`]. It is in
    /// force for some faults to come.
    Wire(usize, usize, u32, usize),
}

impl Fault {
    /// The kind, for the count.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::KillClient(_, None) => "client killed",
            Self::KillClient(_, Some(_)) => "client killed, to stop by itself",
            Self::KillClients => "both clients killed",
            Self::FreezeClient(..) => "client frozen",
            Self::KillServer(..) => "server killed",
            Self::KillAll => "all killed",
            Self::FreezeServer(..) => "server frozen",
            Self::Sever(_) => "connections closed",
            Self::Down(..) => "network down",
            Self::Wire(..) => "wire",
        }
    }
}

/// What happens to a message on the wire.
pub const ARMS: [(&str, Arm); 10] = [
    ("cut", On::cut),
    ("cut_answer", On::cut_answer),
    ("reset", On::reset),
    ("reset_answer", On::reset_answer),
    ("hold", On::hold),
    ("hold_answer", On::hold_answer),
    ("delay", |on| on.delay(Duration::from_millis(120))),
    ("delay_answer", |on| on.delay_answer(Duration::from_millis(120))),
    ("truncate 5", |on| on.truncate_answer(5)),
    ("truncate 40", |on| on.truncate_answer(40)),
];

/// How many kinds of statements [`statement`] knows.
pub const STATEMENTS: usize = 13;

/// A statement by its words, in each dialect.
pub fn statement(flavor: Flavor, which: usize) -> &'static str {
    let words: [&str; STATEMENTS] = match flavor {
        Flavor::Postgres => [
            "SET LOCAL handfast.branch",
            "UPDATE account",
            "INSERT INTO entry",
            "PREPARE TRANSACTION",
            "COMMIT PREPARED",
            "ROLLBACK PREPARED",
            "'one_phase'",
            "pg_prepared_xacts",
            "'fence'",
            "advisory_lock",
            "pg_terminate_backend",
            "handfast_incarnation",
            "DELETE FROM",
        ],
        Flavor::MariaDb | Flavor::MySql => [
            "XA START",
            "UPDATE account",
            "INSERT INTO entry",
            "XA PREPARE",
            "XA COMMIT",
            "XA ROLLBACK",
            "ONE PHASE",
            "XA RECOVER",
            "'fence'",
            "GET_LOCK",
            "IS_USED_LOCK",
            "handfast_incarnation",
            "DELETE FROM",
        ],
    };
    words[which]
}

/// The faults of a round, each after a pause. It has no end.
pub struct Schedule(Dice);

impl Schedule {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }

    fn number(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.roll() % (to - from)
    }

    fn fault(&mut self) -> Fault {
        let (client, server) = (self.0.below(CLIENTS), self.0.below(2));
        match self.0.below(40) {
            0..=4 => Fault::KillClient(client, None),
            5..=15 => Fault::KillClient(client, Some(self.stop())),
            16 => Fault::KillClients,
            17 | 18 => Fault::FreezeClient(client, self.number(50, 1500)),
            19..=21 => Fault::KillServer(server, self.number(0, 400)),
            22 => Fault::KillAll,
            23 | 24 => Fault::FreezeServer(server, self.number(50, 1500)),
            25 | 26 => Fault::Sever(server),
            27 => Fault::Down(server, self.number(50, 600)),
            _ => {
                let (which, nth) = (self.0.below(STATEMENTS), self.number(1, 12));
                Fault::Wire(server, which, u32::try_from(nth).expect("it is small"), self.0.below(ARMS.len()))
            }
        }
    }

    fn stop(&mut self) -> StopAt {
        let requests = Request::ALL.len() * Moment::ALL.len();
        let points: Vec<Point> = Point::all().collect();
        // The steps are fewer than the requests, and as interesting.
        let steps = self.0.below(3) == 0;
        let point =
            if steps { points[requests + self.0.below(Step::ALL.len())] } else { points[self.0.below(requests)] };
        let at = [None, Some(LEDGER), Some(ORDERS)][self.0.below(3)].filter(|_| !steps);
        // What is passed once an opening is not passed forty times.
        let most = [2, 6, 40][self.0.below(3)];
        StopAt { point, at, nth: u32::try_from(self.number(1, most)).expect("it is small") }
    }
}

impl Iterator for Schedule {
    type Item = (Duration, Fault);

    fn next(&mut self) -> Option<Self::Item> {
        let pause = Duration::from_millis(self.number(40, 400));
        Some((pause, self.fault()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_repeats_its_faults_and_all_kinds_occur() {
        let faults = |seed| Schedule::new(seed).take(2000).collect::<Vec<_>>();
        assert_eq!(faults(3), faults(3));
        assert_ne!(faults(3), faults(4));
        let kinds: BTreeSet<_> = faults(3).iter().map(|(_, fault)| fault.kind()).collect();
        assert_eq!(kinds.len(), 10, "{kinds:?}");
        let points: BTreeSet<_> = faults(3)
            .into_iter()
            .filter_map(|(_, fault)| match fault {
                Fault::KillClient(_, Some(stop)) => Some(stop.point),
                _ => None,
            })
            .collect();
        assert_eq!(points.len(), Point::all().count());
    }
}
