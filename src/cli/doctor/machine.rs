//! What the journal stands on: its directory, the file system below, the space there, and the journal itself.

use super::known::Known;
use crate::cli::exit::Exit;
use crate::config::Config;
use crate::error::ErrorKind;
use crate::id::ParticipantName;
use crate::journal::{self, Offline, Verdict};
use crate::participant::{Finding, Severity};
use std::path::{Path, PathBuf};

/// So many segments exist at most: three while one is compacted.
const SEGMENTS: u64 = 3;

/// This machine as the journal needs it.
pub struct Machine {
    pub findings: Vec<Finding>,
    /// What the journal says, where there is one that can be read.
    pub journal: Option<Known>,
    pub exit: Exit,
}

/// Looks without writing.
pub fn look(config: &Config) -> Machine {
    let Some(anchor) = config.transaction.decision.anchor() else { return look_at(config) };
    let finding = decides(config, anchor);
    let exit = if finding.severity == Severity::Failure { Exit::Usage } else { Exit::Clean };
    Machine { findings: vec![finding], journal: None, exit }
}

fn look_at(config: &Config) -> Machine {
    let mut machine = Machine { findings: Vec::new(), journal: None, exit: Exit::Clean };
    let directory = &config.journal.directory;
    machine.findings.push(place(directory));
    if machine.findings[0].severity < Severity::Failure {
        machine.findings.push(file_system(directory));
        machine.findings.push(space(directory, config.journal.segment_bytes));
        machine.read(config);
    }
    if machine.findings.iter().any(|one| one.severity == Severity::Failure) {
        machine.exit = machine.exit.max(Exit::Usage);
    }
    machine
}

/// An anchor in place of the journal: nothing of it is on this machine.
fn decides(config: &Config, anchor: ParticipantName) -> Finding {
    let check = "decisions";
    if config.participants.contains_key(&anchor) {
        return Finding::good(check, format!("{anchor} keeps them: nothing is on this machine's disk"));
    }
    let found = format!("transaction.decision is {anchor}, and no participant has that name");
    Finding::of(Severity::Failure, check, found, "nothing could be decided; without it nothing opens")
        .cure("name a participant, or \"journal\"")
}

fn place(directory: &Path) -> Finding {
    let check = "journal directory";
    let shown = directory.display();
    if !directory.is_dir() {
        let found = format!("{shown} is no directory");
        return Finding::of(Severity::Failure, check, found, "decisions are kept there; without it nothing opens")
            .cure("create it on a disk that keeps what it synced, then run `handfast init`");
    }
    if !may_write(directory) {
        let found = format!("{shown} may not be written by this user");
        return Finding::of(Severity::Failure, check, found, "no decision could be kept there")
            .cure("run this as the application's user, or make it the owner of the directory");
    }
    Finding::good(check, format!("{shown} is there and may be written"))
}

#[cfg(unix)]
fn may_write(directory: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK | Access::EXEC_OK | Access::READ_OK).is_ok()
}

#[cfg(not(unix))]
fn may_write(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|metadata| !metadata.permissions().readonly())
}

/// What the directory lies on, by the list of mounts.
fn file_system(directory: &Path) -> Finding {
    let check = "file system";
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok();
    let kind = directory.canonicalize().ok().zip(mounts).and_then(|(path, mounts)| kind_of(&path, &mounts));
    let Some(kind) = kind else {
        return Finding::of(Severity::Note, check, "could not be told", "this system has no list of mounts");
    };
    judge(check, &kind)
}

fn judge(check: &'static str, kind: &str) -> Finding {
    let on = format!("the journal is on {kind}");
    let is_network = kind.starts_with("nfs") || kind.starts_with("fuse.");
    match kind {
        "tmpfs" | "ramfs" => Finding::of(
            Severity::Failure,
            check,
            on,
            "it is gone when the machine restarts, and every decision with it",
        )
        .cure("move the directory to a disk"),
        "overlay" | "aufs" => Finding::of(
            Severity::Warning,
            check,
            on,
            "a container's own layer is gone with the container, and every decision with it",
        )
        .cure("mount a volume there"),
        "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "glusterfs" => network(check, on),
        _ if is_network => network(check, on),
        _ => Finding::good(check, on),
    }
}

fn network(check: &'static str, on: String) -> Finding {
    let why = "whether a sync reaches a disk, and a lock holds, is up to the other end";
    Finding::of(Severity::Warning, check, on, why).cure("use a local disk")
}

/// The type of the file system that a path is on: the last mount of those whose place is the longest.
fn kind_of(path: &Path, mounts: &str) -> Option<String> {
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((PathBuf::from(unescape(fields.next()?)), fields.next()?))
    });
    let above = mounted.filter(|(place, _)| path.starts_with(place));
    above.max_by_key(|(place, _)| place.components().count()).map(|(_, kind)| kind.to_owned())
}

/// Blanks in the list are octal.
fn unescape(place: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(place.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn space(directory: &Path, segment_bytes: u64) -> Finding {
    let check = "disk space";
    let needed = segment_bytes.saturating_mul(SEGMENTS);
    match free(directory) {
        None => Finding::of(Severity::Note, check, "could not be told", "this system does not say what is free"),
        Some(free) if free < needed => {
            let found = format!("{} MiB free, {SEGMENTS} segments take {} MiB", free >> 20, needed >> 20);
            let why = "transactions are refused when the next segment finds no space";
            Finding::of(Severity::Warning, check, found, why).cure("make space, or set journal.segment_bytes lower")
        }
        Some(_) => Finding::good(check, format!("{SEGMENTS} segments of {} KiB find space", segment_bytes >> 10)),
    }
}

#[cfg(unix)]
fn free(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

impl Machine {
    fn read(&mut self, config: &Config) {
        let check = "journal";
        match journal::read(&config.journal.directory) {
            Ok(found) => self.found(found, config),
            Err(error) if error.kind() == ErrorKind::Config => {
                let why = "opening a bridge makes one as well";
                self.findings.push(Finding::of(Severity::Note, check, error.to_string(), why).cure("handfast init"));
            }
            Err(error) => {
                self.exit = self.exit.max(Exit::of(&error));
                let why = "what was decided is not known";
                self.findings.push(Finding::of(Severity::Failure, check, error.to_string(), why));
            }
        }
    }

    fn found(&mut self, found: Offline, config: &Config) {
        let check = "journal";
        let name = found.journal.map_or_else(|| "(unknown)".into(), |id| id.to_string());
        self.findings.push(match &found.verdict {
            Verdict::Clean | Verdict::TornTail { .. } => Finding::good(check, format!("journal {name} is whole")),
            Verdict::Corrupt(damage) => {
                self.exit = Exit::Corrupt;
                let found = format!("corrupt: {} at offset {}: {}", damage.file, damage.offset, damage.why);
                let why = "what was decided is not known for certain: no branch is touched";
                Finding::of(Severity::Failure, check, found, why)
                    .cure("copy the directory, look for the disk's fault; then `handfast journal verify`")
            }
        });
        if found.in_use {
            let holder = found.holder.as_deref().unwrap_or("an unknown process");
            let why = "that is the running application, as it should be; `handfast recover` waits until it has ended";
            self.findings.push(Finding::of(Severity::Note, "lock", format!("in use by {holder}"), why));
        } else {
            self.findings.push(Finding::good("lock", "nobody has the journal open"));
        }
        self.journal = found.journal.map(|id| Known::of(id, "journal", &found.image, config));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/vdb /run/disk xfs rw 0 0\n\
                          server:/x /mnt/a\\040b nfs4 rw 0 0\ntmpfs /var tmpfs rw 0 0\n/dev/vdc /var ext4 rw 0 0\n";

    #[test]
    fn the_longest_mount_is_the_one() {
        let kind = |path: &str| kind_of(Path::new(path), MOUNTS);
        assert_eq!(kind("/var/lib/handfast").as_deref(), Some("ext4"), "the later mount covers the earlier");
        assert_eq!(kind("/run/handfast").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/run/disk/handfast").as_deref(), Some("xfs"));
        assert_eq!(kind("/runner").as_deref(), Some("ext4"));
        assert_eq!(kind("/mnt/a b/c").as_deref(), Some("nfs4"));
    }

    #[test]
    fn what_forgets_is_no_place_for_decisions() {
        let severity = |kind| judge("file system", kind).severity;
        assert_eq!(["tmpfs", "ramfs"].map(severity), [Severity::Failure; 2]);
        assert_eq!(["overlay", "nfs", "nfs4", "fuse.sshfs", "9p", "cifs"].map(severity), [Severity::Warning; 6]);
        assert_eq!(["ext4", "xfs", "btrfs", "zfs"].map(severity), [Severity::Good; 4]);
    }

    #[test]
    fn a_full_disk_is_told_before_it_counts() {
        let here = std::env::temp_dir();
        assert_eq!(space(&here, u64::MAX / 4).severity, Severity::Warning);
        assert_eq!(space(&here, 1).severity, Severity::Good);
    }

    #[test]
    fn a_missing_directory_is_all_that_is_said() {
        let config = Config::from_toml("node = \"n\"\njournal.directory = \"/nowhere/handfast\"").unwrap();
        let machine = look_at(&config);
        assert_eq!((machine.findings.len(), machine.exit), (1, Exit::Usage));
    }
}
