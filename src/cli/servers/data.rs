//! Data directories: initialised once for each installation, then copied.
//!
//! Initialising costs seconds, copying a fraction of one. A template is made under a lock of the kernel, which a
//! program that dies releases, and renamed into place, so that programs that start together make it once and none
//! sees half of it.

use super::process::User;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Names the way in which templates are made; older ones are not used.
const REVISION: u32 = 1;

/// The templates of one cache directory.
#[derive(Debug)]
pub(super) struct Template {
    place: PathBuf,
    /// Held while this lives.
    _lock: File,
}

impl Template {
    /// Locks the template of this name; waits while another program makes it.
    pub(super) fn lock(cache: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(cache)?;
        let place = cache.join(format!("{name}-{REVISION}"));
        let lock = File::create(cache.join(format!("{name}-{REVISION}.lock")))?;
        lock.lock()?;
        Ok(Self { place, _lock: lock })
    }

    /// The finished template, if there is one.
    pub(super) fn get(&self) -> Option<&Path> {
        self.place.is_dir().then_some(self.place.as_path())
    }

    /// Keeps a copy of `data` as the template.
    pub(super) fn put(&self, data: &Path) -> io::Result<()> {
        let mut partial = self.place.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        copy(data, &partial, None)?;
        fs::rename(&partial, &self.place)
    }
}

/// Copies a directory with its permissions, and gives it to `owner`.
pub(super) fn copy(from: &Path, to: &Path, owner: Option<User>) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target, owner)?;
        } else if entry.file_name() != "auto.cnf" {
            // auto.cnf holds MySQL's server_uuid: each server makes its own.
            fs::copy(&source, &target)?;
            give(&target, owner)?;
        }
    }
    fs::set_permissions(to, fs::Permissions::from_mode(fs::metadata(from)?.permissions().mode()))?;
    give(to, owner)
}

/// Writes a file for `owner` alone.
pub(super) fn write(path: &Path, text: &str, owner: Option<User>) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    give(path, owner)
}

fn give(path: &Path, owner: Option<User>) -> io::Result<()> {
    match owner {
        Some(user) => chown(path, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_made_once_and_copied() {
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("data");
        fs::create_dir_all(data.join("base")).unwrap();
        fs::write(data.join("base/1"), "one").unwrap();
        fs::write(data.join("auto.cnf"), "uuid").unwrap();
        let cache = scratch.path().join("cache");

        let template = Template::lock(&cache, "x").unwrap();
        assert!(template.get().is_none());
        template.put(&data).unwrap();
        drop(template);

        let template = Template::lock(&cache, "x").unwrap();
        let copied = scratch.path().join("copied");
        copy(template.get().unwrap(), &copied, None).unwrap();
        assert_eq!(fs::read_to_string(copied.join("base/1")).unwrap(), "one");
        assert!(!copied.join("auto.cnf").exists());
    }
}
