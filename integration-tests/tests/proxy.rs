//! The proxy itself, before each server.

use handfast::{mysql_async, tokio_postgres};
use integration_tests::each_server;
use integration_tests::proxy::Proxy;
use integration_tests::servers::{self, Flavor, Server};
use mysql_async::prelude::Queryable;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A client of either kind.
enum Client {
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
}

impl Client {
    async fn connect(flavor: Flavor, url: &str) -> Result<Self, String> {
        if flavor == Flavor::Postgres {
            let connecting = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
            let (client, connection) = connecting.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            return Ok(Self::Postgres(client));
        }
        let opts = mysql_async::Opts::from_url(url).unwrap();
        let opts = mysql_async::OptsBuilder::from_opts(opts).prefer_socket(false);
        mysql_async::Conn::new(opts).await.map(|conn| Self::MySql(Box::new(conn))).map_err(|error| error.to_string())
    }

    /// By the text protocol.
    async fn send(&mut self, sql: &str) -> Result<(), String> {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.map_err(|error| error.to_string()),
            Self::MySql(conn) => conn.query_drop(sql).await.map_err(|error| error.to_string()),
        }
    }

    /// As a prepared statement.
    async fn execute(&mut self, sql: &str) -> Result<(), String> {
        match self {
            Self::Postgres(client) => client.execute(sql, &[]).await.map(drop).map_err(|error| error.to_string()),
            Self::MySql(conn) => conn.exec_drop(sql, ()).await.map_err(|error| error.to_string()),
        }
    }
}

struct Place {
    server: &'static Server,
    database: String,
    proxy: Proxy,
}

impl Place {
    async fn new(flavor: Flavor) -> Self {
        let server = servers::shared(flavor).await;
        let database = servers::fresh_database(server).await;
        server.query(&database, "CREATE TABLE t (a INT)").await.unwrap();
        Self { server, database, proxy: Proxy::start(server).await }
    }

    async fn client(&self) -> Client {
        self.try_client().await.unwrap()
    }

    async fn try_client(&self) -> Result<Client, String> {
        Client::connect(self.server.flavor(), &self.proxy.url(&self.database)).await
    }

    async fn rows(&self) -> u32 {
        self.server.value(&self.database, "SELECT count(*) FROM t").await.unwrap().unwrap().parse().unwrap()
    }

    async fn has_rows(&self, expected: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.rows().await != expected {
            assert!(Instant::now() < deadline, "{} rows, {expected} expected", self.rows().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const INSERT: &str = "INSERT INTO t VALUES (1)";

each_server! {
    async fn what_meets_no_rule_passes(flavor) {
        let place = Place::new(flavor).await;
        let mut client = place.client().await;
        client.send(INSERT).await.unwrap();
        client.execute("INSERT INTO t VALUES (2)").await.unwrap();
        // More than any buffer holds.
        client.send(&format!("INSERT INTO t VALUES (3) /* {} */", "x".repeat(300_000))).await.unwrap();
        assert_eq!(place.rows().await, 3);
        assert_eq!(place.proxy.count("INSERT INTO t"), 3);
        let questions = |messages: Vec<integration_tests::proxy::Message>| {
            messages.iter().filter(|message| message.is_question(flavor)).count()
        };
        let before = questions(place.proxy.messages());
        client.send(INSERT).await.unwrap();
        assert_eq!(questions(place.proxy.messages()), before + 1);
    }

    async fn a_cut_message_is_not_delivered(flavor) {
        let place = Place::new(flavor).await;
        let (cut, reset) = (place.proxy.on("(1)").cut(), place.proxy.on("(2)").reset());
        for (rule, sql) in [(cut, INSERT), (reset, "INSERT INTO t VALUES (2)")] {
            let mut client = place.client().await;
            assert!(client.send(sql).await.is_err());
            rule.fired().await;
            assert!(client.send(sql).await.is_err(), "the connection is closed");
            assert_eq!(place.rows().await, 0);
        }
        place.client().await.send(INSERT).await.unwrap();
        assert_eq!(place.rows().await, 1, "a rule fires once");
    }

    async fn an_answer_that_is_cut_was_given(flavor) {
        let place = Place::new(flavor).await;
        let (cut, reset) = (place.proxy.on("(1)").cut_answer(), place.proxy.on("(2)").reset_answer());
        for (rule, sql, rows) in [(cut, INSERT, 1), (reset, "INSERT INTO t VALUES (2)", 2)] {
            let mut client = place.client().await;
            assert!(client.send(sql).await.is_err());
            rule.fired().await;
            assert_eq!(place.rows().await, rows, "at once: the server had acted");
        }
    }

    async fn what_is_held_is_delivered_on_release(flavor) {
        let place = Place::new(flavor).await;
        let rule = place.proxy.on(INSERT).nth(2).hold();
        let mut client = place.client().await;
        client.send(INSERT).await.unwrap();
        {
            let sending = client.send(INSERT);
            tokio::pin!(sending);
            tokio::select! {
                answer = &mut sending => panic!("it was answered: {answer:?}"),
                () = rule.fired() => {}
            }
            assert_eq!((place.rows().await, rule.times()), (1, 1));
            rule.release();
            sending.await.unwrap();
        }
        assert_eq!(place.rows().await, 2);
        // Also after its client is gone.
        let rule = place.proxy.on(INSERT).hold();
        let sending = async { client.send(INSERT).await };
        tokio::select! {
            answer = sending => panic!("it was answered: {answer:?}"),
            () = rule.fired() => {}
        }
        drop(client);
        rule.release();
        place.has_rows(3).await;
    }

    async fn a_held_answer_comes_on_release(flavor) {
        let place = Place::new(flavor).await;
        let rule = place.proxy.on(INSERT).hold_answer();
        let mut client = place.client().await;
        let sending = client.send(INSERT);
        tokio::pin!(sending);
        tokio::select! {
            answer = &mut sending => panic!("it was answered: {answer:?}"),
            () = async { rule.fired().await; place.has_rows(1).await } => {}
        }
        rule.release();
        sending.await.unwrap();
    }

    async fn a_delay_changes_nothing_else(flavor) {
        let place = Place::new(flavor).await;
        let rules = [
            place.proxy.on(INSERT).delay(Duration::from_millis(20)),
            place.proxy.on(INSERT).nth(2).delay_answer(Duration::from_millis(20)),
        ];
        let mut client = place.client().await;
        client.send(INSERT).await.unwrap();
        client.send(INSERT).await.unwrap();
        assert_eq!((rules[0].times(), rules[1].times(), place.rows().await), (1, 1, 2));
    }

    async fn an_answer_can_be_truncated(flavor) {
        let place = Place::new(flavor).await;
        let rule = place.proxy.on("SELECT 7").truncate_answer(6);
        assert!(place.client().await.send("SELECT 7").await.is_err());
        rule.fired().await;
    }

    async fn a_rule_can_go_on_until_it_is_disarmed(flavor) {
        let place = Place::new(flavor).await;
        let rule = place.proxy.on(INSERT).every().cut();
        for round in 1..=3 {
            assert!(place.client().await.send(INSERT).await.is_err());
            assert_eq!(rule.times(), round);
        }
        rule.disarm();
        place.client().await.send(INSERT).await.unwrap();
        assert_eq!(place.rows().await, 1);
    }

    async fn a_proxy_that_is_down_takes_no_connection(flavor) {
        let place = Place::new(flavor).await;
        let mut client = place.client().await;
        let rule = place.proxy.on(INSERT).and_stay_down().cut_answer();
        assert!(client.send(INSERT).await.is_err());
        rule.fired().await;
        assert!(place.try_client().await.is_err());
        place.proxy.up();
        let mut client = place.client().await;
        assert_eq!(place.rows().await, 1);
        place.proxy.sever();
        assert!(timeout(Duration::from_secs(20), client.send(INSERT)).await.unwrap().is_err());
        place.client().await.send(INSERT).await.unwrap();
    }
}
