//! Forced writes, counted from outside: `strace` sees each `fsync` and `fdatasync` of a process, and the file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take until it sees what it should see.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every system call that makes bytes durable.
const CALLS: &str = "trace=fsync,fdatasync,sync_file_range,msync,sync,syncfs";

/// Watches some processes and all that they start.
pub struct Strace {
    child: Child,
    output: PathBuf,
}

impl Strace {
    /// Begins to watch; `None`, with the reason printed, where that is not possible. Its files are in `directory`.
    pub fn start(processes: &[u32], directory: &Path) -> Option<Self> {
        let output = directory.join("strace");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-qqq", "-e", CALLS, "-e", "signal=none", "-o"]).arg(&output);
        for process in processes {
            command.args(["-p", &process.to_string()]);
        }
        let complaints = File::create(directory.join("strace.errors")).expect("a file");
        let child = match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("no forced write is counted from outside: strace: {error}");
                return None;
            }
        };
        let mut strace = Self { child, output };
        if strace.sees(directory) {
            return Some(strace);
        }
        let why = fs::read_to_string(directory.join("strace.errors")).unwrap_or_default();
        println!("no forced write is counted from outside: strace does not work here: {}", why.trim());
        None
    }

    /// Whether it is at work: it must see a sync of our own.
    fn sees(&mut self, directory: &Path) -> bool {
        let probe = directory.join("strace.probe");
        let file = File::create(&probe).expect("a file");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            file.sync_data().expect("a sync");
            if self.files().iter().any(|file| file == &probe) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// The file of each forced write so far.
    pub fn files(&self) -> Vec<PathBuf> {
        let Ok(text) = fs::read(&self.output) else { return Vec::new() };
        String::from_utf8_lossy(&text).lines().filter_map(file).collect()
    }
}

/// The file in `4711 fdatasync(5</path>) = 0`, and in the line's first half where another thread came between; the
/// second half, `<... fdatasync resumed>`, counts for nothing.
fn file(line: &str) -> Option<PathBuf> {
    let (_, call) = line.split_once("sync")?;
    let path = call.split_once('<')?.1.split_once('>')?.0;
    path.starts_with('/').then(|| PathBuf::from(path))
}

impl Drop for Strace {
    fn drop(&mut self) {
        // Interrupted, it lets go of all that it watches.
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}
