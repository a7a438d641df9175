//! Processes and users, as far as the standard library and the system's own commands tell of them.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

/// A user of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Whether we are root.
pub(super) fn is_root() -> bool {
    id(&["-u"]) == Some(0)
}

/// The first of these users that exists.
pub(super) fn first_user(names: &[&str]) -> Option<User> {
    names.iter().find_map(|name| Some(User { uid: id(&["-u", name])?, gid: id(&["-g", name])? }))
}

fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Whether a process exists and has not ended. One that waits to be reaped has ended.
pub fn is_running(pid: u32) -> bool {
    if Path::new("/proc/self/stat").exists() {
        return status(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'));
    }
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.starts_with(b"Z"))
}

/// The state letter and the parent of a process, from `/proc` (proc(5)).
fn status(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold any character.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The children of a process; none where there is no `/proc`.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| status(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// A port of the loopback interface that nobody listens on, below the range that the system gives to outgoing
/// connections: a server that was killed finds its port free again.
pub(super) fn free_port() -> u16 {
    loop {
        let port = u16::try_from(15_000 + random() % 15_000).expect("at most 29,999");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Bits that differ from call to call and from process to process: for names, not for secrets.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
