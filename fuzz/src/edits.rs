//! Small changes to something sound, so that an input gets further than its first bytes without a guide.

/// A change: where, what, and with which byte.
pub type Edit = (u16, u8, u8);

/// Applies changes, each to what the ones before it have left.
pub fn edited(sound: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for (place, what, with) in edits {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(*place) % bytes.len();
        match what % 6 {
            0 => bytes[at] = *with,
            1 => bytes[at] ^= 1 << (with % 8),
            2 => bytes.insert(at, *with),
            3 => drop(bytes.drain(at..(at + usize::from(*with) % 16).min(bytes.len()))),
            4 => bytes.truncate(at),
            _ => {
                let copied = bytes[at..(at + usize::from(*with)).min(bytes.len())].to_vec();
                bytes.splice(at..at, copied);
            }
        }
    }
    bytes
}

/// The inputs that are checked in for a target, in the order of their names.
///
/// # Panics
/// When there are none.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/__fuzz__").join(target).join("corpus");
    let files = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files.iter().map(|file| std::fs::read(file).expect("a file that can be read")).collect()
}
