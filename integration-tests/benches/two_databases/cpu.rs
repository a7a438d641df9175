//! Processor time, which says what a way costs even while others use the same cores. From `/proc`; nothing elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Nanoseconds that went into this program, PostgreSQL, and the other server.
#[derive(Clone, Copy, Default)]
pub struct Cpu(pub [u64; 3]);

/// What each thread of the three has used so far.
pub struct Look([BTreeMap<String, u64>; 3]);

/// Whose time is looked at.
pub struct Meter {
    postgres: Option<u32>,
    mysql: Option<u32>,
}

impl Meter {
    pub fn new(postgres: Option<u32>, mysql: Option<u32>) -> Self {
        Self { postgres, mysql }
    }

    /// All that runs now.
    pub fn read(&self) -> Look {
        let family = |pid| {
            let mut members = children(pid);
            members.push(pid);
            members.into_iter().flat_map(threads).collect()
        };
        let of = |pid: Option<u32>, all: &dyn Fn(u32) -> BTreeMap<String, u64>| pid.map_or_else(BTreeMap::new, all);
        Look([threads(std::process::id()), of(self.postgres, &family), of(self.mysql, &threads)])
    }
}

impl Look {
    /// What was used since an earlier look. Of a thread that has ended since, nothing is known.
    pub fn since(&self, before: &Self) -> Cpu {
        Cpu(std::array::from_fn(|place| {
            let earlier = |thread| before.0[place].get(thread).copied().unwrap_or(0);
            self.0[place].iter().map(|(thread, time)| time.saturating_sub(earlier(thread))).sum()
        }))
    }
}

impl Cpu {
    pub fn and(self, more: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place] + more.0[place]))
    }

    /// Microseconds of each of so many transactions.
    pub fn of_each(self, transactions: u64) -> [f64; 3] {
        self.0.map(|nanos| nanos as f64 / 1000.0 / transactions.max(1) as f64)
    }
}

/// The time of each thread of a process, by a name that no other has.
fn threads(pid: u32) -> BTreeMap<String, u64> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let time = |thread: &Path| Some((thread.display().to_string(), on_cpu(thread)?));
    threads.filter_map(|thread| time(&thread.ok()?.path())).collect()
}

/// The first figure of `schedstat`. <https://docs.kernel.org/scheduler/sched-stats.html>
fn on_cpu(thread: &Path) -> Option<u64> {
    fs::read_to_string(thread.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// Processes that a process has started and that still run.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    texts.flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
