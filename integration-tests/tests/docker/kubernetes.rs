//! The manifests, read by Kubernetes' own types: a field that they do not know is lost on the way and found missing.

use crate::{CONFIG_PATH, USER, path, text};
use handfast::Config;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

const APPLICATION: &str = "docker/kubernetes/statefulset.yaml";
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

fn the_container(pod: &PodSpec) -> &Container {
    let [container] = pod.containers.as_slice() else { panic!("one container") };
    container
}

fn application_config() -> Config {
    let map: ConfigMap = object(APPLICATION, "ConfigMap");
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
fn is_confined(pod: &PodSpec) {
    let whole = pod.security_context.as_ref().unwrap();
    assert_eq!((whole.run_as_non_root, whole.run_as_user, whole.fs_group), (Some(true), Some(USER), Some(USER)));
    let container = the_container(pod);
    let own = container.security_context.as_ref().unwrap();
    assert_eq!((own.read_only_root_filesystem, own.allow_privilege_escalation), (Some(true), Some(false)));
    assert_eq!(own.capabilities.as_ref().unwrap().drop.as_deref(), Some(&["ALL".to_owned()][..]));

    let config = application_config();
    assert_eq!(mount(container, "journal"), config.journal.directory.display().to_string());
    assert_eq!(variable(container, "HANDFAST_CONFIG").as_deref(), Some(CONFIG_PATH));
    assert_eq!(mount(container, "config"), Path::new(CONFIG_PATH).parent().unwrap().to_str().unwrap());
    for participant in config.participants.values() {
        assert!(participant.password_file.as_ref().unwrap().starts_with(mount(container, "passwords")));
    }
}

#[test]
fn the_application_has_a_journal_of_its_own_that_outlives_it() {
    let stateful: StatefulSet = object(APPLICATION, "StatefulSet");
    let spec = stateful.spec.as_ref().unwrap();
    is_confined(pod(&stateful));
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
    assert_eq!(variable(the_container(pod(&stateful)), "HANDFAST__NODE"), None);
    let name = stateful.metadata.name.as_ref().unwrap();
    for number in 0..spec.replicas.unwrap() {
        let node: Result<handfast::id::NodeName, _> = format!("{name}-{number}").parse();
        assert!(node.is_ok(), "{name}-{number}: {node:?}");
    }
    let config = application_config();
    let closing = config.transaction.timeout + config.recovery.open_wait;
    let grace = pod(&stateful).termination_grace_period_seconds.unwrap();
    assert!(u64::try_from(grace).unwrap() > closing.as_secs(), "closing may take {closing:?}");
}

#[test]
fn recovery_works_on_the_volume_and_in_the_name_of_a_pod() {
    let stateful: StatefulSet = object(APPLICATION, "StatefulSet");
    let job: Job = object(RECOVERY, "Job");
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    is_confined(pod);
    let container = the_container(pod);
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

/// A Deployment has no volume of its own: that takes what Handfast does not have yet.
#[test]
fn there_is_no_deployment() {
    for entry in std::fs::read_dir(path("docker/kubernetes")).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("kind: Deployment"), "{}", file.display());
    }
}
