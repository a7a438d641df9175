//! The manifests, read by Kubernetes' own types: a field that they do not know is lost on the way and found missing.

use crate::{CONFIG_PATH, USER, text};
use clap::Parser;
use handfast::Config;
use handfast::cli::args::{Args, Command};
use handfast::config::Decision;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, Probe, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

const APPLICATION: &str = "docker/kubernetes/statefulset.yaml";
const WITHOUT_A_DISK: &str = "docker/kubernetes/deployment.yaml";
const RECOVERY: &str = "docker/kubernetes/recover.yaml";

/// The one object of a kind in a file.
fn object<T: DeserializeOwned + Serialize>(file: &str, kind: &str) -> T {
    let all: Vec<Value> = serde_saphyr::from_multiple(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut found: Vec<_> = all.into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind} in {file}");
    let written = found.remove(0);
    let object: T = serde_json::from_value(written.clone()).unwrap_or_else(|error| panic!("{file}: {kind}: {error}"));
    let read = serde_json::to_value(&object).unwrap();
    assert_eq!(read, written, "{file}: {kind} has a field that Kubernetes does not know");
    object
}

fn pod(stateful: &StatefulSet) -> &PodSpec {
    stateful.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

fn the_container<'a>(pod: &'a PodSpec, name: &str) -> &'a Container {
    pod.containers.iter().find(|container| container.name == name).unwrap_or_else(|| panic!("no container {name}"))
}

fn config_of(file: &str) -> Config {
    let map: ConfigMap = object(file, "ConfigMap");
    let toml = &map.data.expect("data")["handfast.toml"];
    Config::from_toml(toml).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn mount<'a>(container: &'a Container, volume: &str) -> &'a str {
    let mounts = container.volume_mounts.as_ref().expect("mounts");
    &mounts.iter().find(|mount| mount.name == volume).unwrap_or_else(|| panic!("{volume} is not mounted")).mount_path
}

fn variable(container: &Container, name: &str) -> Option<String> {
    let all = container.env.as_ref().expect("an environment");
    let found = all.iter().find(|variable| variable.name == name).unwrap_or_else(|| panic!("{name} is not set"));
    found.value.clone()
}

/// No privilege, nothing to write but the journal, and every path where the configuration says it is.
fn is_confined(pod: &PodSpec, config: &Config) {
    let whole = pod.security_context.as_ref().unwrap();
    assert_eq!((whole.run_as_non_root, whole.run_as_user), (Some(true), Some(USER)));
    for container in &pod.containers {
        let own = container.security_context.as_ref().unwrap();
        assert_eq!((own.read_only_root_filesystem, own.allow_privilege_escalation), (Some(true), Some(false)));
        assert_eq!(own.capabilities.as_ref().unwrap().drop.as_deref(), Some(&["ALL".to_owned()][..]));

        if config.journal.is_set() {
            assert_eq!(whole.fs_group, Some(USER), "the volume is writable for it");
            assert_eq!(mount(container, "journal"), config.journal.directory.display().to_string());
        }
        assert_eq!(variable(container, "HANDFAST_CONFIG").as_deref(), Some(CONFIG_PATH));
        assert_eq!(mount(container, "config"), Path::new(CONFIG_PATH).parent().unwrap().to_str().unwrap());
        for participant in config.participants.values() {
            assert!(participant.password_file.as_ref().unwrap().starts_with(mount(container, "passwords")));
        }
    }
}

/// What closing the bridge may take, and a little more.
fn has_time_to_close(pod: &PodSpec, config: &Config) {
    let closing = config.transaction.timeout + config.recovery.open_wait;
    let grace = pod.termination_grace_period_seconds.unwrap();
    assert!(u64::try_from(grace).unwrap() > closing.as_secs(), "closing may take {closing:?}");
}

/// The tool beside the application: it takes these arguments, writes nothing, and is asked where it answers.
fn is_watched(pod: &PodSpec) {
    let watch = the_container(pod, "watch");
    assert!(watch.image.as_ref().unwrap().ends_with(&format!(":{}", env!("CARGO_PKG_VERSION"))));
    let arguments = watch.args.as_ref().unwrap();
    let parsed = Args::try_parse_from(["handfast"].into_iter().chain(arguments.iter().map(String::as_str)));
    let Command::Watch(options) = parsed.unwrap_or_else(|error| panic!("{error}")).command else {
        panic!("{arguments:?}")
    };
    let address = options.listen.expect("it listens");
    assert!(!address.ip().is_loopback(), "probes come from the node");
    let [port] = watch.ports.as_deref().unwrap() else { panic!("one port") };
    assert_eq!(port.container_port, i32::from(address.port()));
    for (probe, path) in [(&watch.liveness_probe, "/health"), (&watch.readiness_probe, "/ready")] {
        let probe: &Probe = probe.as_ref().unwrap_or_else(|| panic!("no probe of {path}"));
        let asked = probe.http_get.as_ref().unwrap();
        assert_eq!(asked.path.as_deref(), Some(path));
        assert_eq!(Some(&asked.port), port.name.clone().map(IntOrString::String).as_ref());
    }
    let mounts = watch.volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().all(|mount| mount.read_only == Some(true)), "it writes nothing");
}

#[test]
fn the_application_has_a_journal_of_its_own_that_outlives_it() {
    let stateful: StatefulSet = object(APPLICATION, "StatefulSet");
    let spec = stateful.spec.as_ref().unwrap();
    let config = config_of(APPLICATION);
    is_confined(pod(&stateful), &config);
    is_watched(pod(&stateful));
    has_time_to_close(pod(&stateful), &config);
    let claims = spec.volume_claim_templates.as_ref().unwrap();
    assert_eq!(claims[0].metadata.name.as_deref(), Some("journal"));
    let modes = claims[0].spec.as_ref().unwrap().access_modes.as_deref();
    assert_eq!(modes, Some(&["ReadWriteOncePod".to_owned()][..]), "one pod at a time");
    let kept = spec.persistent_volume_claim_retention_policy.as_ref().unwrap();
    let retain = Some("Retain");
    assert_eq!((kept.when_deleted.as_deref(), kept.when_scaled.as_deref()), (retain, retain));
    let service: Service = object(APPLICATION, "Service");
    assert_eq!(service.metadata.name, spec.service_name);

    // The name of every pod is a node's, and taken from the pod itself.
    let name = stateful.metadata.name.as_ref().unwrap();
    for container in &pod(&stateful).containers {
        assert_eq!(variable(container, "HANDFAST__NODE"), None, "it is taken from the pod");
    }
    for number in 0..spec.replicas.unwrap() {
        let node: Result<handfast::id::NodeName, _> = format!("{name}-{number}").parse();
        assert!(node.is_ok(), "{name}-{number}: {node:?}");
    }
}

/// All of its pods are one node, whose decisions are in a database: nothing of it is on any disk.
#[test]
fn an_application_without_a_disk_has_an_anchor() {
    let deployment: Deployment = object(WITHOUT_A_DISK, "Deployment");
    let spec = deployment.spec.as_ref().unwrap();
    let pod = spec.template.spec.as_ref().unwrap();
    let config = config_of(WITHOUT_A_DISK);
    let Decision::Anchor(anchor) = config.transaction.decision else { panic!("its decisions are nowhere") };
    assert!(config.participants[&anchor].witness && !config.journal.is_set());
    is_confined(pod, &config);
    is_watched(pod);
    has_time_to_close(pod, &config);
    for volume in pod.volumes.as_ref().unwrap() {
        assert!(volume.config_map.is_some() || volume.secret.is_some(), "{} is a place to write", volume.name);
    }
    for container in &pod.containers {
        let named = container.env.as_ref().unwrap().iter().any(|variable| variable.name == "HANDFAST__NODE");
        assert!(!named, "all pods are one node");
    }
    let labels = spec.template.metadata.as_ref().unwrap().labels.as_ref();
    assert_eq!(spec.selector.match_labels.as_ref(), labels, "it finds its own pods");
    let service: Service = object(WITHOUT_A_DISK, "Service");
    assert_eq!(service.spec.as_ref().unwrap().selector.as_ref(), labels);
}

#[test]
fn recovery_works_on_the_volume_and_in_the_name_of_a_pod() {
    let stateful: StatefulSet = object(APPLICATION, "StatefulSet");
    let job: Job = object(RECOVERY, "Job");
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    is_confined(pod, &config_of(APPLICATION));
    let container = the_container(pod, "handfast");
    assert_eq!(container.args.as_deref(), Some(&["recover".to_owned()][..]));
    assert!(container.image.as_ref().unwrap().ends_with(&format!(":{}", env!("CARGO_PKG_VERSION"))));
    let node = variable(container, "HANDFAST__NODE").expect("the pod's name");
    let name = stateful.metadata.name.as_ref().unwrap();
    let number: i32 = node.strip_prefix(&format!("{name}-")).expect("a pod of the application").parse().unwrap();
    assert!((0..stateful.spec.as_ref().unwrap().replicas.unwrap()).contains(&number));
    let volumes = pod.volumes.as_ref().unwrap();
    let claim = volumes.iter().find_map(|volume| volume.persistent_volume_claim.as_ref()).expect("the volume");
    assert_eq!(claim.claim_name, format!("journal-{node}"));
    let config = volumes.iter().find_map(|volume| volume.config_map.as_ref()).expect("the configuration");
    assert_eq!(&config.name, name);
}
