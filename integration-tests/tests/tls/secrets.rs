//! Nothing that is printed anywhere holds a password: of a run that works and of one that fails, with every library's
//! records at their most talkative.

use crate::stage::{APP, PASSWORD, tool};
use crate::work::{Work, commit};
use handfast::Bridge;
use integration_tests::each_pair;
use std::io::Write;
use std::sync::{Arc, Mutex, Once, PoisonError};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// What this program's libraries record, of all tests.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<u8>>>);

static RECORDS: Mutex<Option<Records>> = Mutex::new(None);

impl Records {
    /// Begins to listen, once for all tests; the drivers' `log` records come along.
    fn listen() -> Self {
        static LISTENING: Once = Once::new();
        let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
        LISTENING.call_once(|| {
            let all = Self::default();
            let writer = all.clone();
            let layer = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::TRACE);
            layer.with_writer(move || writer.clone()).finish().init();
            *records = Some(all);
        });
        records.clone().expect("it listens")
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Records {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What shows whatever there is, found well or not.
const SHOWN: &[&str] = &["config", "list", "watch --count 1"];

#[track_caller]
fn silent(secret: &str, text: &str) {
    assert!(!text.is_empty(), "nothing was said, so nothing was looked at");
    assert!(!text.contains(secret), "{secret:?} is printed: {text}");
}

each_pair! {
    async fn passwords_are_nowhere(other) {
        let records = Records::listen();
        let work = Work::new(other).await;
        let wrong = "an0ther-that-nobody-may-see";
        let file = work.directory.path().join("password");
        std::fs::write(&file, PASSWORD).unwrap();
        let [ledger, orders] = work.urls(APP, "");
        let lines = "tls = \"require\"\n";
        let by_file = format!("{lines}password_file = {file:?}");
        let by_key = format!("{lines}password = \"{PASSWORD}\"");
        let configs = [work.encrypted(), work.config([&ledger, &orders], [&by_file, &by_key])];
        for config in configs {
            let parsed = config.build();
            silent(PASSWORD, &format!("{parsed:?}"));
            let bridge = Bridge::open(parsed).await.unwrap_or_else(|error| panic!("{}", error.chain()));
            let row = work.rows().await[0].len() as i64;
            commit(&bridge, row).await.unwrap();
            let error = commit(&bridge, row).await.expect_err("the row is there");
            silent(PASSWORD, &format!("{error:?} {error} {:?}", error.chain()));
            silent(PASSWORD, &format!("{:?}", bridge.status()));
            bridge.close().await.unwrap();
            let path = work.path(&config);
            for arguments in ["doctor --all", "recover", "drain", "init --print", "journal verify", "journal dump"].iter().chain(SHOWN) {
                for format in ["text", "json"] {
                    let (code, said) = tool(&path, &format!("--format {format} {arguments}")).await;
                    assert_eq!(code, 0, "{arguments}: {said}");
                    silent(PASSWORD, &said);
                }
            }
        }

        let by_key = format!("{lines}password = \"{wrong}\"");
        let failing = work.config([&by_url_with(&ledger, wrong), &orders], [lines, &by_key]);
        let error = Bridge::open(failing.build()).await.map(|_| ()).expect_err("a wrong password");
        silent(wrong, &format!("{error:?} {error} {:?}", error.chain()));
        let path = work.path(&failing);
        for arguments in ["doctor", "recover", "drain --wait 1s"].iter().chain(SHOWN) {
            for format in ["text", "json"] {
                let (code, said) = tool(&path, &format!("--format {format} {arguments}")).await;
                assert!(code != 0 || *arguments == "config", "{arguments}: {said}");
                silent(wrong, &said);
            }
        }

        let recorded = records.text();
        // The drivers and the encryption are heard as well as we are.
        for heard in ["handfast", "tokio_postgres"] {
            assert!(recorded.contains(heard), "{heard} is not heard");
        }
        silent(PASSWORD, &without_set_up(&recorded));
        silent(wrong, &recorded);
    }
}

fn by_url_with(url: &str, password: &str) -> String {
    url.replace(&format!("{APP}@"), &format!("{APP}:{password}@"))
}

/// Without the statements by which the tests set their servers up, which hold the password: PostgreSQL's driver records
/// every statement.
fn without_set_up(recorded: &str) -> String {
    let is_ours = |line: &&str| !line.contains("CREATE ROLE") && !line.contains("ALTER ROLE");
    recorded.lines().filter(is_ours).collect::<Vec<_>>().join("\n")
}
