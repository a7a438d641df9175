//! The files of `docker/` are right, without a docker: servers are started with the very options of `compose.yaml`, its
//! health checks are asked, Kubernetes' own types read the manifests, and what several files say of one thing is one.

mod compose;
mod databases;
mod image;
mod kubernetes;

use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// A file of the repository.
fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml<T: DeserializeOwned>(name: &str) -> T {
    serde_saphyr::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The configuration of the tool in `compose.yaml`.
fn config() -> handfast::Config {
    handfast::Config::from_toml(&text("docker/handfast.toml")).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The user in every container of ours: no name needs to exist for it.
const USER: i64 = 10001;
/// Where the image looks for the configuration.
const CONFIG_PATH: &str = "/etc/handfast/handfast.toml";
