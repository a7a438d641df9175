//! Processor time, which says what a way costs even while others use the same cores. From `/proc`; nothing elsewhere.

use std::fs;
use std::path::Path;

/// Nanoseconds that so far went into this program, PostgreSQL, and the other server.
#[derive(Clone, Copy, Default)]
pub struct Cpu(pub [u64; 3]);

/// Whose time is looked at.
pub struct Meter {
    postgres: Option<u32>,
    mysql: Option<u32>,
}

impl Meter {
    pub fn new(postgres: Option<u32>, mysql: Option<u32>) -> Self {
        Self { postgres, mysql }
    }

    /// All that runs now; what has ended since the last look is not in it any more, so sessions must stay.
    pub fn read(&self) -> Cpu {
        let family = |pid| {
            let mut members = children(pid);
            members.push(pid);
            members.into_iter().map(time).sum()
        };
        Cpu([time(std::process::id()), self.postgres.map_or(0, family), self.mysql.map_or(0, time)])
    }
}

impl Cpu {
    pub fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place].saturating_sub(before.0[place])))
    }
}

/// The time of all threads of a process.
fn time(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    threads.filter_map(|thread| on_cpu(&thread.ok()?.path())).sum()
}

/// The first figure of `schedstat`. <https://docs.kernel.org/scheduler/sched-stats.html>
fn on_cpu(thread: &Path) -> Option<u64> {
    fs::read_to_string(thread.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    texts.flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
