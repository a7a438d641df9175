//! `handfast watch`: the same as `list`, again and again; and what it tells probes and Prometheus.

use crate::golden::{self, show};
use crate::stage::{Stage, killed_at, only, run_to_end, tool, values};
use integration_tests::conformance::eventually;
use integration_tests::each_pair;
use serde_json::Value;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Duration, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// A watch that serves.
struct Watch {
    child: Child,
    address: String,
}

impl Watch {
    async fn start(stage: &Stage) -> Self {
        let mut command = tool();
        command.arg("--config").arg(stage.config_path());
        command.args(["watch", "--interval", "100ms", "--listen", "127.0.0.1:0", "--format", "json"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("it says where").unwrap().unwrap();
        // Whatever it says later is read, so that it is not held up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Self { address: address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned(), child }
    }

    /// The status code, and the body.
    async fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(format!("{request} HTTP/1.1\r\nHost: watch\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it answers, and closes").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn becomes(&self, path: &str, code: u16, word: &str) {
        let is = async || self.ask(&format!("GET {path}")).await == (code, format!("{word}\n"));
        eventually(&format!("{path} says {code} {word}"), is).await;
    }

    /// The value of a figure.
    async fn figure(&self, series: &str) -> Option<String> {
        let (code, text) = self.ask("GET /metrics").await;
        assert_eq!(code, 200);
        text.lines().find_map(|line| Some(line.strip_prefix(series)?.trim().to_owned()))
    }

    async fn ends_on(mut self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
        let ended = timeout(PATIENCE, self.child.wait()).await.expect("it ends when it is told to").unwrap();
        assert_eq!(ended.code(), Some(0), "as the last look was");
    }
}

each_pair! {
    async fn it_says_what_the_list_says(other) {
        let stage = golden::stage(other).await;
        stage.tool("init").await.ended(0);
        show(&stage, "watch", &["watch --count 1", "watch --count 2 --interval 100ms"]).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        stage.tool("watch --count 2 --interval 100ms").await.ended(3).says(&id);
        let ran = stage.tool("watch --count 2 --interval 100ms --format json").await;
        let looks: Vec<Value> = ran.ended(3).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(looks.len(), 2, "one line a look: {ran}");
        for look in &looks {
            assert_eq!((look["schema"].as_u64(), look["status"].as_str()), (Some(1), Some("in_doubt")));
            assert_eq!(values(only(look), &["id", "decision"]), [&*id, "commit"]);
        }
        stage.tool("recover").await.ended(0);
    }

    /// A look that comes to nothing is no reason to stop looking.
    async fn it_goes_on_without_a_journal(other) {
        let stage = Stage::new(other).await;
        std::fs::remove_dir(stage.journal()).unwrap();
        let ran = stage.tool("watch --count 2 --interval 100ms --format json").await;
        let looks: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(looks.len(), 2, "{ran}");
        assert!(ran.code != 0 && looks.iter().all(|look| look["error"].is_string()), "{ran}");
    }

    async fn probes_and_prometheus_are_answered(other) {
        let stage = Stage::with_own_mysql(other).await;
        stage.tool("init").await.ended(0);
        let watch = Watch::start(&stage).await;
        watch.becomes("/ready", 200, "clean").await;
        assert_eq!(watch.ask("GET /health").await, (200, "watching\n".into()));
        assert_eq!(watch.ask("GET /nothing").await.0, 404);
        assert_eq!(watch.ask("POST /ready").await.0, 405);
        let node = &stage.node;
        let reachable = format!("handfast_participant_reachable{{node=\"{node}\",participant=\"orders\"}} ");
        assert_eq!(watch.figure(&reachable).await.as_deref(), Some("1"));
        let room = watch.figure(&format!("handfast_prepared_slots_free{{node=\"{node}\",participant=\"ledger\"}} ")).await;
        assert!(room.unwrap().parse::<u64>().unwrap() > 0);
        let in_doubt = format!("handfast_in_doubt{{node=\"{node}\"}} ");
        assert_eq!(watch.figure(&in_doubt).await.as_deref(), Some("0"));

        killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        watch.becomes("/ready", 200, "in_doubt").await;
        assert_eq!(watch.figure(&in_doubt).await.as_deref(), Some("1"));
        stage.mysql.kill().await.unwrap();
        watch.becomes("/ready", 503, "unreachable").await;
        assert_eq!(watch.figure(&reachable).await.as_deref(), Some("0"));
        assert_eq!(watch.ask("GET /health").await.0, 200, "the watch is well");
        stage.mysql.restart().await.unwrap();
        watch.becomes("/ready", 200, "in_doubt").await;
        stage.tool("recover").await.ended(0);
        watch.becomes("/ready", 200, "clean").await;
        watch.ends_on("-INT").await;
        let watch = Watch::start(&stage).await;
        watch.becomes("/ready", 200, "clean").await;
        watch.ends_on("-TERM").await;
    }

    async fn an_address_that_is_taken_is_told(other) {
        let stage = Stage::new(other).await;
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let mut command = tool();
        command.arg("--config").arg(stage.config_path()).args(["watch", "--listen", &address]);
        run_to_end(command).await.ended(2).complains(&["cannot listen on", &address]);
    }
}
