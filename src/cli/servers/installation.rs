//! Finding what is installed.

use super::Flavor;
use crate::error::{Error, ErrorKind, Result};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder under cargo's target directory into which `scripts/setup` unpacks MySQL.
const UNPACKED_MYSQL: &str = "servers/mysql";

/// The server programs of one product on this machine.
#[derive(Debug, Clone)]
pub struct Installation {
    flavor: Flavor,
    version: String,
    server: PathBuf,
    /// The folder that stands for `/`, for one that is unpacked into a folder.
    root: Option<PathBuf>,
    /// The dynamic loader and the libraries to run such a one with, unless it is a script that does so itself.
    loader: Option<(PathBuf, PathBuf)>,
    /// What creates a data directory, where that is a program of its own.
    initializer: Option<PathBuf>,
}

impl Installation {
    /// Finds a server: in `bin` when that is given, else in the folder that `HANDFAST_POSTGRES_ROOT`,
    /// `HANDFAST_MARIADB_ROOT` or `HANDFAST_MYSQL_ROOT` names, else where the product is usually installed.
    ///
    /// `bin` is the server's program, the folder that holds it, or a folder into which a distribution's packages
    /// were unpacked (`usr/sbin/mysqld` below it). A program given for [`Flavor::MySql`] may turn out to be
    /// MariaDB: [`flavor`](Self::flavor) tells.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`], naming every place looked at and what to install.
    pub fn find(flavor: Flavor, bin: Option<&Path>) -> Result<Self> {
        let candidates = match bin {
            Some(bin) => given(flavor, bin),
            None => told(flavor).map_or_else(|| usual(flavor), |root| given(flavor, &root)),
        };
        let mut looked_at = Vec::new();
        for candidate in candidates {
            match Self::at(&candidate) {
                Ok(found) if found.flavor == flavor || bin.is_some() => return Ok(found),
                Ok(found) => looked_at.push(format!("{} (is {})", candidate.display(), found.flavor.product())),
                Err(why) => looked_at.push(format!("{} ({why})", candidate.display())),
            }
        }
        let message =
            format!("no {} server found; looked at {}; {}", flavor.product(), looked_at.join(", "), cure(flavor));
        Err(Error::new(ErrorKind::Setup, message))
    }

    /// The product, as the program itself says.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// The version, like `15.18`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The server's program.
    pub fn server(&self) -> &Path {
        &self.server
    }

    /// The program that creates a data directory, where it is not the server itself.
    pub(super) fn initializer(&self) -> Option<&Path> {
        self.initializer.as_deref()
    }

    /// The folder that stands for `/` in an unpacked installation.
    pub(super) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The words that run the server.
    pub(super) fn command(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if let Some((loader, libraries)) = &self.loader {
            words.extend([loader.into(), OsString::from("--library-path"), libraries.into()]);
        }
        words.push(self.server.clone().into());
        words
    }

    /// Looks at one program; says why it is not a server that we know.
    fn at(server: &Path) -> std::result::Result<Self, String> {
        if !server.is_file() {
            return Err(String::from("not there"));
        }
        let server = server.canonicalize().map_err(|error| error.to_string())?;
        let loader = root_of(&server).and_then(loader_in);
        let root = root_of(&server).filter(|_| loader.is_some()).map(Path::to_owned);
        let loader = loader.filter(|_| !is_script(&server));
        let mut found = Self { flavor: Flavor::MySql, version: String::new(), server, root, loader, initializer: None };
        let words = found.command();
        let output = Command::new(&words[0]).args(&words[1..]).arg("--version").output();
        let output = output.map_err(|error| format!("does not run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        (found.flavor, found.version) = parse_version(&text).ok_or_else(|| {
            format!("answers --version with {:?} {:?}", text.trim(), String::from_utf8_lossy(&output.stderr).trim())
        })?;
        found.initializer = match found.flavor {
            Flavor::Postgres => Some(found.beside(&["initdb"])?),
            Flavor::MariaDb => Some(found.beside(&["mariadb-install-db", "mysql_install_db"])?),
            Flavor::MySql => None,
        };
        Ok(found)
    }

    /// A program that belongs to the server: in its folder, in the folders beside that, or on the PATH.
    fn beside(&self, names: &[&str]) -> std::result::Result<PathBuf, String> {
        let folder = self.server.parent().unwrap_or(Path::new("/"));
        let mut folders = vec![folder.to_owned()];
        folders.extend(["../bin", "../sbin", "../scripts"].map(|other| folder.join(other)));
        folders.extend(path());
        let found = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).find(|p| p.is_file());
        found.ok_or_else(|| format!("has no {} beside it", names[0]))
    }
}

/// The programs that `bin`, given by a person, may mean.
fn given(flavor: Flavor, bin: &Path) -> Vec<PathBuf> {
    if bin.is_file() {
        return vec![bin.to_owned()];
    }
    let below = ["", "sbin", "bin", "usr/sbin", "usr/bin"].map(|folder| bin.join(folder));
    let names: &[&str] = match flavor {
        Flavor::Postgres => &["postgres"],
        Flavor::MariaDb => &["mariadbd", "mysqld"],
        Flavor::MySql => &["mysqld", "mariadbd"],
    };
    let plain = below.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let debian = (flavor == Flavor::Postgres).then(|| versioned(&bin.join("usr/lib/postgresql")));
    plain.chain(debian.into_iter().flatten()).collect()
}

/// The folder in which the product is, as the environment names it.
fn told(flavor: Flavor) -> Option<PathBuf> {
    let name = format!("HANDFAST_{}_ROOT", flavor.as_str().to_ascii_uppercase());
    env::var_os(name).filter(|root| !root.is_empty()).map(PathBuf::from)
}

/// The programs that are usually there.
fn usual(flavor: Flavor) -> Vec<PathBuf> {
    let system = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"].map(PathBuf::from);
    let everywhere = |name: &'static str| path().chain(system.clone()).map(move |folder| folder.join(name));
    let mut programs: Vec<PathBuf> = match flavor {
        Flavor::Postgres => everywhere("postgres").chain(versioned(Path::new("/usr/lib/postgresql"))).collect(),
        Flavor::MariaDb => everywhere("mariadbd").collect(),
        Flavor::MySql => unpacked().map(|root| root.join("usr/sbin/mysqld")).chain(everywhere("mysqld")).collect(),
    };
    // Long lists of places that do not exist help nobody: one is enough where none exists.
    let first = programs.first().cloned();
    programs.retain(|program| program.is_file());
    if programs.is_empty() {
        programs.extend(first);
    }
    let mut seen = Vec::new();
    programs.retain(|program| {
        !seen.contains(program) && {
            seen.push(program.clone());
            true
        }
    });
    programs
}

/// The folders of PATH.
fn path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|folder| folder.is_absolute()).collect::<Vec<_>>().into_iter()
}

/// Debian's PostgreSQL versions, the newest first.
fn versioned(root: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin/postgres"))))
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, program)| program)
}

/// Where an unpacked MySQL may be: in the target directory of the checkout that we are in.
fn unpacked() -> impl Iterator<Item = PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let here = env::current_dir().unwrap_or_default();
    let above: Vec<PathBuf> = here.ancestors().map(|folder| folder.join("target")).collect();
    target.into_iter().chain(above).map(|target| target.join(UNPACKED_MYSQL))
}

/// The folder that stands for `/`, when a program lies in a tree of packages unpacked elsewhere.
fn root_of(server: &Path) -> Option<&Path> {
    let usr = server.parent()?.parent()?;
    (usr.file_name() == Some(OsStr::new("usr"))).then(|| usr.parent()).flatten().filter(|root| *root != Path::new("/"))
}

/// The dynamic loader of a tree of packages and the folder of its libraries: `usr/lib/<machine>/ld-linux-*`.
fn loader_in(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let folders = fs::read_dir(root.join("usr/lib")).ok()?.flatten().map(|entry| entry.path()).filter(|p| p.is_dir());
    folders.into_iter().find_map(|folder| {
        let files = fs::read_dir(&folder).ok()?.flatten();
        let loader = files.into_iter().find(|file| file.file_name().to_string_lossy().starts_with("ld-linux"))?;
        Some((loader.path(), folder))
    })
}

/// Whether a program is a script, as those are in which `scripts/setup` wraps what it unpacks.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(program).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// `postgres (PostgreSQL) 15.18 (Debian ..)`, `mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for ..`,
/// `/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 (..)`.
fn parse_version(text: &str) -> Option<(Flavor, String)> {
    let number = |rest: &str| {
        let word = rest.split_whitespace().next()?;
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        (end > 0).then(|| word[..end].to_owned())
    };
    if let Some((_, rest)) = text.split_once("(PostgreSQL) ") {
        return Some((Flavor::Postgres, number(rest)?));
    }
    let (_, rest) = text.split_once("Ver ")?;
    let flavor = if text.contains("MariaDB") { Flavor::MariaDb } else { Flavor::MySql };
    Some((flavor, number(rest)?))
}

fn cure(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Postgres => {
            "install it (Debian, Ubuntu: apt-get install postgresql) or name its folder with --postgres-bin"
        }
        Flavor::MariaDb => {
            "install it (Debian, Ubuntu: apt-get install mariadb-server) or name its folder with --mysql-bin"
        }
        Flavor::MySql => {
            "run scripts/setup in a checkout of Handfast, which unpacks it, or install it and name its mysqld with --mysql-bin"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_by_the_programs_themselves() {
        for (text, flavor, version) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Flavor::Postgres, "15.18"),
            ("postgres (PostgreSQL) 18beta1\n", Flavor::Postgres, "18"),
            (
                "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)\n",
                Flavor::MariaDb,
                "10.11.19",
            ),
            ("/r/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))\n", Flavor::MySql, "9.7.4"),
        ] {
            assert_eq!(parse_version(text), Some((flavor, version.to_owned())), "{text}");
        }
        assert_eq!(parse_version("busybox"), None);
        assert_eq!(parse_version("Ver \n"), None);
    }

    #[test]
    fn an_unpacked_tree_is_known_by_its_usr() {
        assert_eq!(root_of(Path::new("/x/r/usr/sbin/mysqld")), Some(Path::new("/x/r")));
        assert_eq!(root_of(Path::new("/usr/sbin/mysqld")), None);
        assert_eq!(root_of(Path::new("/opt/mysql/bin/mysqld")), None);
    }

    /// As `scripts/setup --newest` leaves them.
    #[test]
    fn a_wrapped_program_brings_its_own_loader() {
        let root = tempfile::TempDir::new().unwrap();
        let place = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        place("usr/lib/machine/ld-linux-machine.so.2", "");
        place("usr/sbin/mariadbd", "#!/bin/sh\necho 'mariadbd  Ver 11.8.9-MariaDB-4 from Debian'");
        place("usr/bin/mariadb-install-db", "");
        place("usr/lib/postgresql/18/bin/postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 18.6 (Debian 18.6-3)'");
        place("usr/lib/postgresql/18/bin/initdb", "");
        let found = Installation::find(Flavor::MariaDb, Some(root.path())).unwrap();
        assert_eq!((found.version(), found.command().len()), ("11.8.9", 1));
        assert_eq!(found.root(), Some(root.path().canonicalize().unwrap().as_path()));
        let found = Installation::find(Flavor::Postgres, Some(root.path())).unwrap();
        assert_eq!((found.version(), found.command().len(), found.root()), ("18.6", 1, None));
    }

    #[test]
    fn a_server_that_is_missing_is_named_with_the_cure() {
        let error = Installation::find(Flavor::Postgres, Some(Path::new("/nonexistent"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup);
        let text = error.to_string();
        assert!(text.contains("/nonexistent/postgres (not there)"), "{text}");
        assert!(text.contains("apt-get install postgresql"), "{text}");
    }
}
