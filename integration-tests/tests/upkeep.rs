//! What a bridge and its tables need to stay in order for ever: leases that are lost, servers that are replaced, rows that
//! are pruned, journals that are copied. On real servers.

use handfast::id::{ParticipantName, hex};
use handfast::resolver::Resolver;
use handfast::{Bridge, Error, ErrorKind, Outcome};
use integration_tests::application::Application;
use integration_tests::each_pair;
use integration_tests::proxy::{Arm, On};
use integration_tests::servers::{ConfigBuilder, Flavor};
use integration_tests::world::{
    Home, LEDGER, ORDERS, PATIENCE, Program, Side, World, eventually, insert, insert_at, settled,
};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tokio::time::Instant;

/// A lease that is confirmed often, on connections that are given up soon.
const OFTEN: &str = "[recovery]\nlease_interval = \"100ms\"\nstatement_timeout = \"2s\"";

/// The words by which a proxy knows that the lease is confirmed, and that it is taken.
fn lease_words(side: &Side) -> (&'static str, &'static str) {
    match side.flavor() {
        Flavor::Postgres => {
            ("FROM pg_catalog.pg_locks l WHERE l.pid = pg_catalog.pg_backend_pid()", "pg_try_advisory_lock")
        }
        Flavor::MariaDb | Flavor::MySql => ("') = CONNECTION_ID()", "GET_LOCK('handfast.lease."),
    }
}

/// Opens a bridge as soon as it can be.
async fn opened(world: &World, sections: &str) -> Bridge {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Bridge::open(world.config(sections)).await {
            Ok(bridge) => return bridge,
            Err(error) => assert!(Instant::now() < deadline, "{}", error.chain()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn refusal(opening: handfast::Result<Bridge>) -> Error {
    let error = opening.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
    error
}

async fn all_settled(bridge: &Bridge) {
    eventually("earlier incarnations are settled", async || bridge.status().unsettled == 0).await;
}

fn orders() -> ParticipantName {
    ORDERS.parse().expect("a name")
}

/// The tool, with a configuration.
fn tool(config: &ConfigBuilder, arguments: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a file");
    config.write(file.path());
    let mut tool = Command::new(env!("CARGO_BIN_EXE_handfast-tool"));
    tool.arg("--config").arg(file.path()).args(arguments).output().expect("the tool runs")
}

/// Its exit code, and all that it said.
fn ended(output: &Output) -> (Option<i32>, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn copy_journal(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a journal") {
        let entry = entry.expect("an entry");
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
        }
    }
}

each_pair! {
    /// The connection that holds the lease is cut, or swallowed by the network, while a transaction is being prepared: somebody else
    /// could have had the lease and settled what is prepared. So it is rolled back, whether the lease is held again by
    /// then or not; the next one commits.
    async fn a_lease_lost_on_the_way_rolls_back(other) {
        let world = World::new(other).await;
        let bridge = world.open_with(OFTEN).await;
        let ways: [Arm; 2] = [On::cut, On::hold];
        let mut key = 0;
        for side in world.sides() {
            let (confirmed, taken) = lease_words(side);
            for (way, regained) in [(ways[0], true), (ways[0], false), (ways[1], true)] {
                key += 1;
                let tx = insert(&bridge, key).await;
                // The other one's vote is late: until then this one is prepared and nothing is decided.
                let other = world.other(side);
                let vote = other.proxy.on(other.words().prepare).hold_answer();
                let committing = tokio::spawn(tx.commit());
                vote.fired().await;
                eventually("it is prepared", async || !side.prepared().await.is_empty()).await;
                let before = side.proxy.count(taken);
                let never = (!regained).then(|| side.proxy.on(taken).every().cut());
                let loss = way(side.proxy.on(confirmed));
                loss.fired().await;
                // A swallowed connection is given up only when its answer is overdue.
                eventually("it is asked for again", async || side.proxy.count(taken) > before).await;
                vote.release();
                let error = committing.await.unwrap().unwrap_err();
                assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::Retry), "{key}");
                if let Some(never) = never {
                    never.disarm();
                }
                world.is_nowhere(key).await;
                loss.release();
                key += 1;
                insert(&bridge, key).await.commit().await.unwrap();
                world.is_on_both(key).await;
            }
        }
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
        bridge.close().await.unwrap();
    }

    /// A commit that the network cuts or swallows each time it is sent leaves the lease alone: other transactions go on, and
    /// it is carried out as soon as it gets through.
    async fn a_commit_that_hangs_leaves_the_lease(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[recovery]\nlease_interval = \"100ms\"\nstatement_timeout = \"1s\"").await;
        let ways: [Arm; 2] = [On::cut, On::hold];
        let mut key = 0;
        for (number, side) in (0..).zip(world.sides()) {
            let messages = side.proxy.messages();
            let taking = messages.iter().find(|message| message.text.contains(lease_words(side).1));
            let taking = &taking.expect("it was taken").text;
            for way in ways {
                key += 2;
                let tx = insert(&bridge, key).await;
                let branch = tx.id().branch(number, 0);
                let named = match side.flavor() {
                    Flavor::Postgres => format!("COMMIT PREPARED '{}.", tx.id()),
                    Flavor::MariaDb | Flavor::MySql => format!("XA COMMIT X'{}'", hex(branch.gtrid().as_bytes())),
                };
                let rule = way(side.proxy.on(&named).every());
                let (taken, listed) = (side.proxy.count(taking), side.proxy.count(side.words().list));
                let committing = tokio::spawn(tx.commit());
                eventually("it is tried again and again", async || rule.times() > 2).await;
                insert(&bridge, key + 1).await.commit().await.unwrap();
                assert_eq!(committing.await.unwrap().unwrap().pending.len(), 1);
                assert!(side.proxy.count(side.words().list) > listed);
                assert_eq!(side.proxy.count(taking), taken, "{}: the lease was kept", side.name);
                rule.disarm();
                rule.release();
                world.is_on_both(key).await;
                world.is_on_both(key + 1).await;
            }
        }
        // As of the last pass: the next one has it.
        eventually("nothing is in doubt", async || bridge.status().in_doubt == 0).await;
        assert_eq!(bridge.status().damaged, 0);
        bridge.close().await.unwrap();
    }

    /// The network swallows the end of a program: its server keeps the lease for it. The next opening is told so, and gets
    /// in when the server has noticed, or when somebody has ended the dead session.
    async fn a_dead_programs_lease_is_free_in_a_while(other) {
        let world = World::new(other).await;
        for side in world.sides() {
            let program = Program::start(world.config(OFTEN)).await;
            let incarnation = program.begin_commit(1).await.incarnation;
            eventually("it works", async || world.ledger.has(1).await && world.orders.has(1).await).await;
            let swallowed = side.proxy.on(lease_words(side).0).hold();
            swallowed.fired().await;
            program.crash().await;
            let refused = refusal(Bridge::open(world.config(OFTEN)).await);
            let text = refused.chain();
            assert_eq!(refused.participant().unwrap().as_str(), side.name);
            for told in [&*incarnation.to_string(), "has not noticed", "try again"] {
                assert!(text.contains(told), "{told:?} is missing: {text}");
            }
            if side.flavor() == Flavor::Postgres {
                // Here the other end of the connection is the proxy, which answers for ever.
                assert!(side.proxy.count("tcp_user_timeout") > 0 && side.proxy.count("tcp_keepalives_idle") > 0);
                side.query(&format!(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                     WHERE application_name LIKE 'handfast.%.{incarnation}.{}'",
                    side.name
                ))
                .await;
            }
            let bridge = opened(&world, OFTEN).await;
            all_settled(&bridge).await;
            for side in world.sides() {
                side.query("DELETE FROM t").await;
            }
            insert(&bridge, 2).await.commit().await.unwrap();
            world.is_on_both(2).await;
            bridge.close().await.unwrap();
            swallowed.release();
            for side in world.sides() {
                side.query("DELETE FROM t").await;
            }
        }
    }

    /// The tool on a copy of the journal, beside the original at work: refused, told by whom, and nothing is touched.
    async fn a_copy_beside_the_original_is_refused(other) {
        let world = World::new(other).await;
        let program = Program::start(world.config(OFTEN)).await;
        let held = world.orders.proxy.on(world.orders.words().prepare).hold_answer();
        let id = program.begin_commit(1).await;
        held.fired().await;
        eventually("one side is prepared", async || !world.ledger.prepared().await.is_empty()).await;
        let copy = tempfile::TempDir::new().unwrap();
        copy_journal(world.journal.path(), copy.path());
        let config = world.builder_at(copy.path(), OFTEN);
        for arguments in [&["recover"][..], &["resolve", &id.to_string(), "--rollback", "--reason", "by mistake"]] {
            let output = tokio::task::block_in_place(|| tool(&config, arguments));
            let (code, text) = ended(&output);
            assert_eq!(code, Some(6), "{text}");
            assert!(text.contains(&id.incarnation.to_string()) && text.contains("is in use there by"), "{text}");
            assert_eq!(world.ledger.prepared().await.len(), 1, "nothing was touched");
        }
        held.release();
        let bridge = program.bridge.clone();
        let outcome = program.spawn(async move { settled(&bridge, id).await }).await.unwrap();
        assert_eq!(outcome, Outcome::Committed);
        world.is_on_both(1).await;
        program.crash().await;
    }

    /// Another server under a known name: refused, while what the others hold is settled. Adopted, what was decided and
    /// cannot be known is damage; a person forgets it, and all is well.
    async fn a_replaced_server_is_adopted(other) {
        let mut world = World::on(Home::shared(Flavor::Postgres).await, Home::own(other).await).await;
        let program = Program::start(world.config("")).await;
        let rules = world.sides().map(|side| side.proxy.on(side.words().commit).every().cut());
        let id = program.begin_commit(1).await;
        for rule in &rules {
            rule.fired().await;
        }
        program.crash().await;
        rules.iter().for_each(integration_tests::proxy::Rule::disarm);
        let node = world.ledger.node().to_owned();
        let fresh = Side::new(ORDERS, Home::shared(other).await, &node).await;
        std::mem::replace(&mut world.orders, fresh).server.kill().await.unwrap();

        let refused = refusal(Bridge::open(world.config("")).await);
        assert!(refused.chain().contains("lineage"), "{}", refused.chain());
        eventually("the other one is settled", async || world.ledger.has(1).await).await;
        assert!(world.ledger.prepared().await.is_empty());

        let resolver = Resolver::open(world.config("")).unwrap();
        let adoption = resolver.adopt(orders(), "its disks are lost").await.unwrap();
        assert_eq!(adoption.unproven, [id]);
        resolver.close().await.unwrap();
        let (code, dump) = ended(&tokio::task::block_in_place(|| tool(&world.builder(""), &["journal", "dump"])));
        assert_eq!(code, Some(0));
        let given_up = dump.lines().find(|line| line.contains("given up")).expect("it is written down");
        assert!(given_up.contains("its disks are lost"), "with the reason: {given_up}");

        let bridge = world.open().await;
        eventually("it is damaged", async || bridge.status().damaged == 1).await;
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Damaged);
        insert(&bridge, 2).await.commit().await.unwrap();
        bridge.close().await.unwrap();
        let resolver = Resolver::open(world.config("")).unwrap();
        resolver.forget(id, "paid by hand").await.unwrap();
        resolver.close().await.unwrap();
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Damaged);
        bridge.close().await.unwrap();
    }

    /// A participant is given up and stays in the configuration: later openings do not wait for what they never had there.
    /// When a server is seen again under its name, it is used.
    async fn a_server_that_is_gone_keeps_no_later_opening_unsettled(other) {
        let world = World::new(other).await;
        let sections = "[recovery]\nopen_wait = \"1s\"\nstatement_timeout = \"1s\"";
        let program = Program::start(world.config(sections)).await;
        program.begin_commit(1).await;
        eventually("it works", async || world.ledger.has(1).await && world.orders.has(1).await).await;
        program.crash().await;
        world.orders.proxy.down();
        let bridge = world.open_with(sections).await;
        let alone = async |bridge: &Bridge, key| {
            let tx = bridge.begin().await.unwrap();
            insert_at(&tx, LEDGER, key).await.unwrap();
            tx.commit().await.unwrap();
        };
        alone(&bridge, 2).await;
        bridge.close().await.unwrap();
        let resolver = Resolver::open(world.config(sections)).unwrap();
        let adoption = resolver.give_up(orders(), "the machine burnt down").await.unwrap();
        assert!(adoption.unproven.is_empty() && !adoption.given_up.is_empty(), "{adoption:?}");
        resolver.close().await.unwrap();
        for key in 3..6 {
            let bridge = world.open_with(sections).await;
            all_settled(&bridge).await;
            alone(&bridge, key).await;
            bridge.close().await.unwrap();
        }
        world.orders.proxy.up();
        let bridge = world.open_with(sections).await;
        insert(&bridge, 6).await.commit().await.unwrap();
        all_settled(&bridge).await;
        world.is_on_both(6).await;
        bridge.close().await.unwrap();
    }

    /// Thousands of transactions leave small tables, and what was pruned is known all the same: also after the program was
    /// killed in the middle.
    async fn pruned_rows_are_not_missed(other) {
        let world = World::new(other).await;
        let program = env!("CARGO_BIN_EXE_test-application");
        let mut application = Application::load(program, &world.builder(""), 0, 4, 0).await;
        let committed = |application: &Application| {
            let said = application.transactions();
            said.into_iter().filter(|(_, one)| one.answer == Some(Outcome::Committed)).map(|(key, one)| (key, one.id)).collect::<Vec<_>>()
        };
        let rows = async |side: &Side| side.value("SELECT count(*) FROM handfast_witness").await.unwrap().parse::<usize>().unwrap();
        let enough = Instant::now() + 4 * PATIENCE;
        while committed(&application).len() < 2000 {
            assert!(Instant::now() < enough, "{}", application.errors());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for side in world.sides() {
            eventually("rows go", async || rows(side).await * 2 < committed(&application).len()).await;
        }
        application.kill().await;
        let said = committed(&application);
        for side in world.sides() {
            side.sessions_are_gone().await;
        }
        let bridge = world.open().await;
        all_settled(&bridge).await;
        world.nothing_is_prepared().await;
        let keys = world.ledger.keys().await;
        assert_eq!(keys, world.orders.keys().await);
        for (key, id) in &said {
            assert!(keys.binary_search(key).is_ok(), "{key} was said to be committed");
            assert_eq!(bridge.outcome(*id).await.unwrap(), Outcome::Committed, "{key}");
        }
        for side in world.sides() {
            eventually("nothing of the settled one is left", async || rows(side).await == 0).await;
        }
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
        bridge.close().await.unwrap();
    }

    /// The journal is lost, but for a copy from before the last opening: refused, until a person says that it is all there
    /// is. Then what the witnesses prove is known, and the rest is decided by hand.
    async fn a_copy_that_is_all_there_is_gets_clean(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        insert(&bridge, 1).await.commit().await.unwrap();
        bridge.close().await.unwrap();
        let copy = tempfile::TempDir::new().unwrap();
        copy_journal(world.journal.path(), copy.path());
        let config = world.builder_at(copy.path(), "");

        let program = Program::start(world.config("")).await;
        let bridge = program.bridge.clone();
        let whole = program.spawn(async move { insert(&bridge, 2).await.commit().await }).await.unwrap().unwrap().id;
        let no_vote = world.ledger.proxy.on("PREPARE TRANSACTION").hold();
        let undecided = program.begin_commit(4).await;
        no_vote.fired().await;
        let no_commit = world.orders.proxy.on(world.orders.words().commit).every().cut();
        let decided = program.begin_commit(3).await;
        no_commit.fired().await;
        eventually("one side has committed", async || world.ledger.has(3).await).await;
        eventually("both are prepared", async || world.orders.prepared().await.len() == 2).await;
        program.crash().await;
        world.ledger.proxy.sever();
        no_commit.disarm();
        for side in world.sides() {
            side.sessions_are_gone().await;
        }

        let run = |arguments: &[&str]| ended(&tokio::task::block_in_place(|| tool(&config, arguments)));
        let expect = |arguments: &[&str], code: i32, says: &[&str]| {
            let (ended, text) = run(arguments);
            assert_eq!(ended, Some(code), "{arguments:?}: {text}");
            for says in says {
                assert!(text.contains(says), "{says:?} is missing after {arguments:?}: {text}");
            }
        };
        let (lost, decided, undecided) = (whole.incarnation.to_string(), decided.to_string(), undecided.to_string());
        let repair = ["journal", "repair", "--reason", "the disk is lost"];
        let repair_now = [&repair[..], &["--yes"]].concat();
        assert!(refusal(Bridge::open(config.build()).await).chain().contains("older copy"));
        expect(&["recover"], 6, &["older copy"]);
        expect(&repair, 0, &["nothing was changed", &lost]);
        expect(&["recover"], 6, &["older copy"]);
        assert_eq!(world.orders.prepared().await.len(), 2, "nothing was touched");
        expect(&repair_now, 0, &["completed", &lost]);
        expect(&repair_now, 6, &["nothing to repair"]);
        expect(&["recover"], 5, &[&decided, &undecided]);
        assert_eq!(world.orders.prepared().await.len(), 2, "that is for a person");
        expect(&["resolve", &decided, "--commit", "--reason", "the ledger has it"], 0, &[]);
        expect(&["resolve", &undecided, "--rollback", "--reason", "nobody was told of it"], 0, &[]);
        expect(&["recover"], 0, &[]);
        for key in 1..4 {
            world.is_on_both(key).await;
        }
        world.is_nowhere(4).await;
        expect(&["outcome", &whole.to_string()], 0, &["committed"]);
        let bridge = Bridge::open(config.build()).await.unwrap();
        all_settled(&bridge).await;
        insert(&bridge, 5).await.commit().await.unwrap();
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
        bridge.close().await.unwrap();
    }

    /// A copy from the middle of an opening, with decisions made behind it: its witnesses alone give it away.
    async fn a_copy_from_the_middle_of_an_opening_is_told(other) {
        let world = World::new(other).await;
        let program = Program::start(world.config("")).await;
        let commit = async |key| {
            let bridge = program.bridge.clone();
            program.spawn(async move { insert(&bridge, key).await.commit().await }).await.unwrap().unwrap().id
        };
        commit(1).await;
        let copies = [(); 2].map(|()| tempfile::TempDir::new().unwrap());
        copies.iter().for_each(|copy| copy_journal(world.journal.path(), copy.path()));
        let later = commit(2).await;
        program.crash().await;
        for side in world.sides() {
            side.sessions_are_gone().await;
        }
        let run = |copy: &tempfile::TempDir, arguments: &[&str]| {
            ended(&tokio::task::block_in_place(|| tool(&world.builder_at(copy.path(), ""), arguments)))
        };
        let (code, text) = run(&copies[0], &["recover"]);
        assert!(code == Some(6) && text.contains("older copy") && text.contains(&later.to_string()), "{text}");
        let repair = ["journal", "repair", "--reason", "the disk is lost"];
        let (code, text) = run(&copies[1], &repair);
        assert!(code == Some(0) && text.contains("nothing was changed") && text.contains(&later.to_string()), "{text}");
        let (code, text) = run(&copies[1], &[&repair[..], &["--yes"]].concat());
        assert!(code == Some(0) && text.contains("completed"), "{text}");
        let (code, text) = run(&copies[1], &["recover"]);
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = run(&copies[1], &["outcome", &later.to_string()]);
        assert!(code == Some(0) && text.contains("committed"), "{text}");
    }
}
