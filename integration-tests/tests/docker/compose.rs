//! `compose.yaml` as this project uses it: a key that is not here is a slip of the pen, or is to be added here.

use crate::{CONFIG_PATH, config, path, yaml};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compose {
    #[serde(rename = "name")]
    _name: String,
    pub services: BTreeMap<String, Service>,
    secrets: BTreeMap<String, Secret>,
    volumes: BTreeMap<String, Option<()>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    file: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    image: Option<String>,
    build: Option<Build>,
    pub command: Vec<String>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    pub volumes: Vec<String>,
    #[serde(default)]
    ports: Vec<String>,
    pub healthcheck: Option<HealthCheck>,
    restart: Option<String>,
    stop_grace_period: Option<String>,
    #[serde(default)]
    profiles: Vec<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    cap_drop: Vec<String>,
    #[serde(default)]
    security_opt: Vec<String>,
    #[serde(default)]
    depends_on: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Build {
    context: String,
    dockerfile: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    pub test: Vec<String>,
    #[serde(rename = "interval")]
    _interval: String,
    #[serde(rename = "timeout")]
    _timeout: String,
    #[serde(rename = "retries")]
    _retries: u32,
}

pub fn compose() -> Compose {
    yaml("docker/compose.yaml")
}

const DATABASES: [&str; 3] = ["postgres", "mysql", "mariadb"];

impl Service {
    /// The settings of a server, as its command sets them.
    pub fn settings(&self) -> Vec<(String, String)> {
        let words = self.command.iter().map(String::as_str).filter(|word| !["postgres", "-c"].contains(word));
        let setting = |word: &str| {
            let (name, value) = word.trim_start_matches("--").split_once('=').expect("a setting is NAME=VALUE");
            (name.replace('-', "_"), value.to_owned())
        };
        words.map(setting).collect()
    }

    /// The file of ours that is found at a place in the container.
    pub fn mounted(&self, place: &str) -> Option<String> {
        let mounts = self.volumes.iter().filter_map(|volume| volume.strip_suffix(":ro"));
        let found = mounts.filter_map(|mount| mount.split_once(':')).find(|(_, at)| at.starts_with(place));
        found.map(|(file, _)| format!("docker/{}", file.trim_start_matches("./")))
    }
}

#[test]
fn what_is_named_is_there() {
    let compose = compose();
    let mut used = (BTreeSet::new(), BTreeSet::new());
    for (name, service) in &compose.services {
        assert_ne!(service.image.is_some(), service.build.is_some(), "{name}: an image or a way to build one");
        if let Some(image) = &service.image {
            let (_, tag) = image.split_once(':').unwrap_or_else(|| panic!("{name}: {image} has no version"));
            assert!(tag.starts_with(|c: char| c.is_ascii_digit()), "{name}: {image}");
        }
        for volume in &service.volumes {
            let (source, place) = volume.split_once(':').expect("SOURCE:PLACE");
            assert!(place.starts_with('/'), "{name}: {volume}");
            match source.strip_prefix("./") {
                Some(file) => {
                    assert!(path("docker").join(file).is_file(), "{name}: there is no docker/{file}");
                    assert!(place.ends_with(":ro"), "{name}: {volume} is ours, not the container's to write");
                }
                None => assert!(compose.volumes.contains_key(source), "{name}: {source} is no volume"),
            }
            used.0.insert(source.to_owned());
        }
        for secret in &service.secrets {
            assert!(compose.secrets.contains_key(secret), "{name}: {secret}");
            used.1.insert(secret.clone());
        }
        for (other, how) in &service.depends_on {
            assert!(compose.services[other].healthcheck.is_some(), "{name} waits for {other}, which has no check");
            assert_eq!(how.get("condition").map(String::as_str), Some("service_healthy"), "{name}: {other}");
        }
    }
    assert!(compose.volumes.keys().all(|volume| used.0.contains(volume)), "an unused volume");
    for (name, secret) in &compose.secrets {
        assert!(used.1.contains(name), "{name} is not used");
        let file = format!("docker/{}", secret.file.trim_start_matches("./"));
        assert!(crate::text(".gitignore").lines().any(|line| line == file), "{file} could be committed");
    }
}

#[test]
fn databases_keep_their_data_and_are_not_open_to_the_world() {
    let compose = compose();
    for name in DATABASES {
        let service = &compose.services[name];
        assert!(service.volumes.iter().any(|volume| volume.starts_with(&format!("{name}-data:"))), "{name}");
        assert!(!service.ports.is_empty() && service.ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{name}");
        assert!(service.restart.is_some() && service.stop_grace_period.is_some(), "{name}");
        let secrets = service.environment.iter().filter(|(key, _)| key.contains("PASSWORD"));
        assert!(secrets.clone().count() > 0, "{name}");
        for (key, value) in secrets {
            assert!(key.ends_with("_FILE") && value.starts_with("/run/secrets/"), "{name}: {key} is a plain password");
        }
    }
}

#[test]
fn the_tool_is_confined_and_finds_its_files() {
    let compose = compose();
    let tool = &compose.services["handfast"];
    let build = tool.build.as_ref().expect("it is built here");
    assert_eq!(path("docker").join(&build.context).canonicalize().unwrap(), path("").canonicalize().unwrap());
    assert!(path(&build.dockerfile).is_file());
    assert!(tool.read_only && tool.cap_drop == ["ALL"] && tool.security_opt == ["no-new-privileges:true"]);
    assert_eq!(tool.profiles, ["tool"], "`up` starts the databases alone");
    assert!(DATABASES.iter().all(|name| tool.depends_on.contains_key(*name)));
    assert_eq!(tool.mounted(CONFIG_PATH).as_deref(), Some("docker/handfast.toml"));

    let config = config();
    let journal = format!("journal:{}", config.journal.directory.display());
    assert!(tool.volumes.contains(&journal), "{journal}");
    for (name, participant) in &config.participants {
        let file = participant.password_file.as_ref().expect("no password in the file").display().to_string();
        let secret = file.strip_prefix("/run/secrets/").expect("a secret");
        assert!(tool.secrets.iter().any(|one| one == secret), "{name}: {file}");
        let host = participant.url.split(['@', '/']).nth(3).expect("SCHEME://USER@HOST/DATABASE");
        assert!(DATABASES.contains(&host), "{name}: {host} is no service");
    }
}
