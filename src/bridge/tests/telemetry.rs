//! What is traced of a transaction: one span with its id, branches and outcome, inside the caller's, its phases inside it,
//! and events where an operator has something to do.

use super::*;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Instrument, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span as it was seen.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Its own name behind its parents'.
    path: String,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = self.fields.entry(field.name()).or_default();
        text.clear();
        write!(text, "{value:?}").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// The open ones by number, which the registry gives out again, and the closed ones.
type Spans = (BTreeMap<u64, Seen>, Vec<Seen>);

/// Keeps all that is recorded on this thread.
#[derive(Clone, Default)]
struct Recorder {
    spans: Arc<Mutex<Spans>>,
    events: Arc<Mutex<Vec<(Level, Seen)>>>,
}

impl Recorder {
    fn listen(level: LevelFilter) -> (Self, DefaultGuard) {
        let recorder = Self::default();
        let subscriber = tracing_subscriber::registry().with(recorder.clone().with_filter(level));
        (recorder, tracing::subscriber::set_default(subscriber))
    }

    fn spans(&self) -> Vec<Seen> {
        let spans = self.spans.lock().unwrap();
        spans.0.values().chain(&spans.1).cloned().collect()
    }

    #[track_caller]
    fn one(&self, path: &str) -> Seen {
        let all = self.spans();
        let mut found = all.iter().filter(|span| span.path == path);
        let one = found.next().unwrap_or_else(|| panic!("no {path} in {all:#?}")).clone();
        assert!(found.next().is_none(), "{path} more than once in {all:#?}");
        one
    }

    fn events(&self, at_least: Level) -> Vec<(Level, Seen)> {
        self.events.lock().unwrap().iter().filter(|(level, _)| *level <= at_least).cloned().collect()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let scope = context.span(id).unwrap().scope().from_root().map(|span| span.name()).collect::<Vec<_>>();
        let mut seen = Seen { path: scope.join("/"), ..Seen::default() };
        attributes.record(&mut seen);
        self.spans.lock().unwrap().0.insert(id.into_u64(), seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(self.spans.lock().unwrap().0.get_mut(&id.into_u64()).unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let scope = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        let path = scope.map(|span| span.name()).collect::<Vec<_>>().join("/");
        let mut seen = Seen { path, ..Seen::default() };
        event.record(&mut seen);
        self.events.lock().unwrap().push((*event.metadata().level(), seen));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut spans = self.spans.lock().unwrap();
        let mut seen = spans.0.remove(&id.into_u64()).unwrap();
        seen.is_closed = true;
        spans.1.push(seen);
    }
}

#[tokio::test]
async fn a_commit_is_one_span_inside_the_callers_with_its_phases_inside() {
    let world = World::new();
    let bridge = world.open().await;
    let (recorder, _guard) = Recorder::listen(LevelFilter::DEBUG);
    let work = async {
        let tx = write_both(&bridge).await;
        tx.commit().await.unwrap().id
    };
    let id = work.instrument(tracing::info_span!("request")).await;
    let is_over = || recorder.spans().iter().all(|span| span.is_closed);
    eventually("all spans are closed", is_over).await;

    let fields = recorder.one("request/transaction").fields;
    let expected = [("branches", "left,right"), ("id", &id.to_string()), ("outcome", "committed")];
    assert_eq!(fields, expected.map(|(key, value)| (key, value.to_owned())).into());
    for phase in ["prepare", "decide", "apply"] {
        recorder.one(&format!("request/transaction/{phase}"));
    }
    for (path, phase) in [("begin", "begin"), ("prepare/prepare", "prepare"), ("apply/apply", "apply")] {
        let path = format!("request/transaction/{path}");
        let mut at: Vec<_> = recorder.spans().into_iter().filter(|span| span.path == path).collect();
        at.sort_by(|a, b| a.fields["participant"].cmp(&b.fields["participant"]));
        let at: Vec<_> = at.iter().map(|span| span.fields["participant"].as_str()).collect();
        assert_eq!(at, ["left", "right"], "{phase}");
    }
    assert!(recorder.events(Level::INFO).is_empty(), "nobody need hear of it: {:?}", recorder.events(Level::INFO));
}

/// The default of most subscribers: no phases, no events of what goes well.
#[tokio::test]
async fn at_info_there_is_one_span_and_nothing_else() {
    let world = World::new();
    let bridge = world.open().await;
    let (recorder, _guard) = Recorder::listen(LevelFilter::INFO);
    write_both(&bridge).await.commit().await.unwrap();
    write_both(&bridge).await.rollback().await.unwrap();
    let is_over = || recorder.spans().iter().all(|span| span.is_closed);
    eventually("all spans are closed", is_over).await;
    let mut outcomes: Vec<_> =
        recorder.spans().into_iter().map(|span| (span.path, span.fields["outcome"].clone())).collect();
    outcomes.sort();
    let both = [("transaction", "committed"), ("transaction", "rolled_back")];
    assert_eq!(outcomes, both.map(|(path, outcome)| (path.to_owned(), outcome.to_owned())));
    assert!(recorder.events(Level::INFO).is_empty(), "{:?}", recorder.events(Level::INFO));
}

#[tokio::test]
async fn a_rollback_tells_its_cause_and_alarms_nobody() {
    let world = World::new();
    let bridge = world.open().await;
    let (recorder, _guard) = Recorder::listen(LevelFilter::DEBUG);
    let tx = write_both(&bridge).await;
    world.right.arm(Step::Prepare, Fault::Refuse);
    tx.commit().await.unwrap_err();
    let span = recorder.one("transaction");
    assert_eq!(span.fields["outcome"], "rolled_back");
    assert!(span.fields["cause"].starts_with("right: "), "{span:?}");
    assert!(recorder.events(Level::INFO).is_empty(), "{:?}", recorder.events(Level::INFO));
    assert_eq!(recorder.events(Level::DEBUG).iter().filter(|(_, event)| event.path == "transaction").count(), 1);
}

/// Whoever drops the future does not see the outcome: the trace does.
#[tokio::test]
async fn a_dropped_commit_is_traced_to_its_end() {
    let world = World::new();
    let bridge = world.open().await;
    let (recorder, _guard) = Recorder::listen(LevelFilter::INFO);
    let tx = write_both(&bridge).await;
    let mut commit = Box::pin(tx.commit());
    assert!((&mut commit).now_or_never().is_none(), "it takes more than a poll");
    drop(commit);
    let ended = || recorder.spans().iter().any(|span| span.is_closed && span.fields.contains_key("outcome"));
    eventually("its span is closed with the outcome", ended).await;
    assert_eq!(recorder.one("transaction").fields["outcome"], "committed");
}

#[tokio::test]
async fn an_operator_hears_of_doubt_and_of_what_is_late() {
    let world = World::new();
    let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
    let (recorder, _guard) = Recorder::listen(LevelFilter::DEBUG);
    // The only writer's lost answer.
    let tx = bridge.begin().await.unwrap();
    write(&tx, "left", 1, 10).await.unwrap();
    world.left.arm(Step::CommitOnePhase, Fault::LoseAnswer);
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt);
    let (level, event) = recorder.events(Level::WARN).remove(0);
    assert_eq!((level, event.path.as_str()), (Level::WARN, "transaction"));
    assert_eq!(event.fields["id"], error.id().to_string());
    assert!(event.fields["message"].contains("in doubt") && event.fields["cause"].contains("left"), "{event:?}");

    outcome_settles(&bridge, error.id()).await;
    let tx = bridge.begin().await.unwrap();
    tokio::try_join!(write(&tx, "left", 2, 10), write(&tx, "right", 2, 20)).unwrap();
    world.right.arm(Step::Commit, Fault::Hang);
    let committed = tx.commit().await.unwrap();
    let told = recorder.events(Level::INFO);
    let told = told.iter().find(|(_, event)| event.fields.get("id") == Some(&committed.id.to_string())).unwrap();
    assert_eq!((told.0, told.1.fields["pending"].as_str()), (Level::INFO, "right"));
}

/// What the resolver finds is told once, and so is its end.
#[tokio::test]
async fn an_operator_hears_of_what_cannot_be_seen_once() {
    let world = World::new();
    let (recorder, _guard) = Recorder::listen(LevelFilter::INFO);
    let bridge = world.open().await;
    let resolver = Resolver::live(bridge.engine.clone());
    let of = |level: Level, text: &str| {
        let told = recorder.events(Level::INFO).into_iter();
        told.filter(|(at, event)| *at == level && event.fields["message"].contains(text)).count()
    };
    (0..1000).for_each(|_| world.right.arm(Step::List, Fault::LoseRequest));
    for _ in 0..2 {
        resolver.sweep_branches(&|_| {}).await;
        assert_eq!(of(Level::WARN, "cannot be seen"), 1, "{:?}", recorder.events(Level::INFO));
    }
    world.right.disarm(Step::List);
    resolver.sweep_branches(&|_| {}).await;
    assert_eq!(of(Level::INFO, "can be seen again"), 1);
}

/// Damage that was told with the commit's answer is not told again by the pass that finds it.
#[tokio::test]
async fn an_operator_hears_of_damage_once() {
    let world = World::new();
    let bridge = world.open().await;
    let (recorder, _guard) = Recorder::listen(LevelFilter::INFO);
    let tx = write_both(&bridge).await;
    let session: Arc<MemorySession> = tx.branch("left").await.unwrap();
    session.end(true).unwrap();
    session.begin().unwrap();
    drop(session);
    let id = tx.commit().await.unwrap_err().id().to_string();
    let resolver = Resolver::live(bridge.engine.clone());
    for _ in 0..2 {
        let pass = resolver.sweep_branches(&|_| {}).await;
        assert!(pass.left.transactions.iter().any(|one| one.outcome == Outcome::Damaged), "the pass finds it");
        assert_eq!(bridge.status().damaged, 1);
        let told = recorder.events(Level::ERROR);
        assert_eq!(told.iter().filter(|(_, event)| event.fields.get("id") == Some(&id)).count(), 1, "{told:?}");
    }
}

/// What an application traces in its closure belongs to the transaction.
#[tokio::test]
async fn the_closures_own_events_are_inside() {
    let world = World::new();
    let bridge = world.open().await;
    let (recorder, _guard) = Recorder::listen(LevelFilter::INFO);
    bridge
        .transaction(async |tx| {
            tracing::info!("the application at work");
            write(tx, "left", 1, 10).await
        })
        .await
        .unwrap();
    let (_, event) = recorder.events(Level::INFO).remove(0);
    assert_eq!((event.path.as_str(), event.fields["message"].as_str()), ("transaction", "the application at work"));
}
