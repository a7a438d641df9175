//! What is measured: scraped after transactions on real servers, and what documentation, dashboard and alerts say of it.

use handfast::telemetry::{METRICS, MetricKind};
use integration_tests::each_pair;
use integration_tests::world::{World, eventually, insert};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A program has one recorder: the tests look for what is theirs.
static RECORDER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.001, 0.01, 0.1, 1.0]).unwrap();
    builder.install_recorder().unwrap()
});

/// The value of one line, by its name and by parts of its labels.
fn value(text: &str, name: &str, labels: &[String]) -> Option<f64> {
    let of = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let is_it = series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label));
        is_it.then(|| value.parse::<f64>().unwrap())
    };
    text.lines().filter(|line| !line.starts_with('#')).find_map(of)
}

fn count(name: &str, labels: &[&str]) -> f64 {
    let labels: Vec<_> = labels.iter().map(|label| (*label).to_owned()).collect();
    value(&RECORDER.render(), name, &labels).unwrap_or(0.0)
}

each_pair! {
    async fn what_transactions_do_can_be_scraped(other) {
        LazyLock::force(&RECORDER);
        let world = World::new(other).await;
        let bridge = world.open_with("[recovery]\nlease_interval = \"50ms\"\n").await;
        let counted = [
            ("handfast_transactions_total", "outcome=\"committed\""),
            ("handfast_transactions_total", "outcome=\"rolled_back\""),
            ("handfast_phase_seconds_count", "phase=\"begin\""),
            ("handfast_phase_seconds_count", "phase=\"prepare\""),
            ("handfast_phase_seconds_count", "phase=\"decide\""),
            ("handfast_phase_seconds_count", "phase=\"apply\""),
            ("handfast_phase_seconds_count", "phase=\"roll_back\""),
            ("handfast_pool_wait_seconds_count", "participant=\"ledger\""),
            ("handfast_pool_wait_seconds_count", "participant=\"orders\""),
        ];
        let before = counted.map(|(name, label)| count(name, &[label]));
        let synced = count("handfast_journal_sync_seconds_count", &[]);
        insert(&bridge, 1).await.commit().await.unwrap();
        insert(&bridge, 2).await.commit().await.unwrap();
        insert(&bridge, 3).await.rollback().await.unwrap();
        let grew = || counted.iter().zip(before).all(|((name, label), before)| count(name, &[label]) > before);
        eventually("everything was counted", async || grew()).await;
        assert!(count("handfast_journal_sync_seconds_count", &[]) > synced);
        assert!(count("handfast_journal_batch_records_count", &[]) > 0.0);

        let node = format!("node=\"{}\"", world.ledger.node());
        let gauge = |name: &str, more: &[&str]| {
            let labels: Vec<_> = more.iter().map(|label| (*label).to_owned()).chain([node.clone()]).collect();
            value(&RECORDER.render(), name, &labels)
        };
        for name in ["handfast_in_doubt", "handfast_damaged", "handfast_journal_failed", "handfast_in_doubt_oldest_seconds"] {
            eventually(&format!("{name} is 0"), async || gauge(name, &[]) == Some(0.0)).await;
        }
        for participant in ["participant=\"ledger\"", "participant=\"orders\""] {
            let name = "handfast_participant_reachable";
            eventually(&format!("{participant} is reachable"), async || gauge(name, &[participant]) == Some(1.0)).await;
        }
        let room = async || gauge("handfast_prepared_slots_free", &["participant=\"ledger\""]).is_some_and(|free| free > 0.0);
        eventually("there is room on PostgreSQL", room).await;
        assert_eq!(gauge("handfast_prepared_slots_free", &["participant=\"orders\""]), None);
        bridge.close().await.unwrap();

        let known: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        for line in RECORDER.render().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap();
            assert!(known.contains(name), "{name} is in no table");
        }
    }
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_table_is_the_codes() {
    let page = page("metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `handfast_"));
    let rows: Vec<Vec<_>> = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let coded = METRICS.iter().map(|metric| {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        [format!("`{}`", metric.name), kind.into(), metric.labels.into(), metric.help.into()]
    });
    assert_eq!(rows.iter().map(|row| row[..4].to_vec()).collect::<Vec<_>>(), coded.collect::<Vec<_>>());
}

/// Every name in an expression is that of a figure; a histogram's lines have their endings.
#[track_caller]
fn knows(expression: &str) -> usize {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut seen = 0;
    for word in words.filter(|word| word.starts_with("handfast_")) {
        let is_one = METRICS.iter().any(|metric| match (metric.kind, word.strip_prefix(metric.name)) {
            (_, None) => false,
            (MetricKind::Histogram, Some(ending)) => ["_bucket", "_sum", "_count"].contains(&ending),
            (_, Some(ending)) => ending.is_empty(),
        });
        assert!(is_one, "{word} does not exist: {expression}");
        seen += 1;
    }
    seen
}

#[test]
fn the_dashboard_shows_what_exists_and_all_of_it() {
    let text = page("grafana-dashboard.json");
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            assert!(knows(target["expr"].as_str().unwrap()) > 0, "{panel:#}");
        }
    }
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has its own id");
    for metric in METRICS {
        assert!(text.contains(metric.name), "{} is not shown", metric.name);
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name")]
    _name: String,
    rules: Vec<Rule>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(default, rename = "for")]
    _for: Option<String>,
    labels: std::collections::BTreeMap<String, String>,
    annotations: std::collections::BTreeMap<String, String>,
}

#[test]
fn the_alerts_are_about_what_exists() {
    let rules: Rules = serde_saphyr::from_str(&page("alerts.yaml")).unwrap();
    let all: Vec<_> = rules.groups.into_iter().flat_map(|group| group.rules).collect();
    assert!(all.len() >= 5, "only {}", all.len());
    for rule in &all {
        assert!(knows(&rule.expr) > 0, "{}", rule.alert);
        assert!(rule.labels.contains_key("severity"), "{}", rule.alert);
        assert!(["summary", "description"].iter().all(|key| rule.annotations.contains_key(*key)), "{}", rule.alert);
    }
    let names: BTreeSet<_> = all.iter().map(|rule| &rule.alert).collect();
    assert_eq!(names.len(), all.len());
    // Prometheus' own opinion, where its tool is installed.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/alerts.yaml");
    if let Ok(ran) = Command::new("promtool").args(["check", "rules"]).arg(file).output() {
        assert!(
            ran.status.success(),
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}
