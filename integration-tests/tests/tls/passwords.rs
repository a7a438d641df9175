//! Ways to log in, and passwords that change.

use crate::stage::{APP, PASSWORD, PKI, connect, database, shared, url};
use crate::work::{NAMES, Work, commit};
use handfast::{Bridge, ErrorKind};
use integration_tests::servers::{self, Flavor};
use integration_tests::world::eventually;
use integration_tests::{each_mysql, each_pair};

fn full() -> String {
    format!("tls = \"verify-full\"\n{}", PKI.trusting("ca.pem"))
}

each_mysql! {
    /// Each way to log in that the server knows and the driver speaks, in the clear, encrypted and by the socket.
    async fn each_way_to_log_in(flavor) {
        let server = shared(flavor).await;
        let plugins: &[&str] = match flavor {
            Flavor::MySql => &["caching_sha2_password"],
            _ => {
                server.query("mysql", "INSTALL SONAME 'auth_ed25519'").await.unwrap();
                &["mysql_native_password", "ed25519"]
            }
        };
        let socket = server.directory().join("socket").display().to_string();
        for plugin in plugins {
            let user = servers::unique("u");
            for host in ["%", "localhost"] {
                let how = match flavor {
                    Flavor::MySql => format!("IDENTIFIED WITH {plugin} BY '{PASSWORD}'"),
                    _ => format!("IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')"),
                };
                let create = format!("CREATE USER '{user}'@'{host}' {how}; GRANT ALL ON mysql.* TO '{user}'@'{host}'");
                server.query("mysql", &create).await.unwrap();
            }
            let by_network = url(server, &user, PASSWORD, "localhost", database(flavor));
            let by_socket = format!("{by_network}?socket={socket}");
            let full = full();
            let ways = [(&by_network, ""), (&by_network, &*full), (&by_socket, "")];
            for (url, lines) in ways {
                if flavor == Flavor::MySql {
                    // The server forgets who has logged in, and asks for the whole password once; then it remembers.
                    server.query("mysql", "FLUSH PRIVILEGES").await.unwrap();
                }
                for _ in 0..2 {
                    let answer = connect(flavor, url, lines).await;
                    answer.unwrap_or_else(|error| panic!("{plugin}, {lines:?}: {}", error.chain()));
                }
                let wrong = url.replace(PASSWORD, "wrong");
                let error = connect(flavor, &wrong, lines).await.expect_err(plugin);
                assert_eq!(error.kind(), ErrorKind::Setup, "{plugin}: {}", error.chain());
            }
        }
    }
}

/// The system's user is proof enough on a socket, where the server asks for no more.
mod by_the_systems_user {
    use super::*;

    #[test]
    fn mariadb() {
        servers::runtime().block_on(async {
            let server = shared(Flavor::MariaDb).await;
            let me = std::process::Command::new("id").arg("-un").output().unwrap();
            let me = String::from_utf8(me.stdout).unwrap().trim().to_owned();
            let account = format!("'{me}'@'localhost'");
            let create =
                format!("CREATE OR REPLACE USER {account} IDENTIFIED VIA unix_socket; GRANT ALL ON *.* TO {account}");
            server.query("mysql", &create).await.unwrap();
            let socket = server.directory().join("socket").display().to_string();
            let url = format!("mysql://{me}@localhost/mysql?socket={socket}");
            connect(Flavor::MariaDb, &url, "").await.unwrap_or_else(|error| panic!("{}", error.chain()));
        });
    }
}

/// SCRAM-SHA-256, and its proof that nobody sits between the two ends of an encrypted connection.
mod scram {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = shared(Flavor::Postgres).await;
            let plain = url(server, APP, PASSWORD, "localhost", "postgres");
            let bound = format!("{plain}?channel_binding=require");
            let full = full();
            for (url, lines) in [(&plain, ""), (&plain, &*full), (&bound, &*full)] {
                let answer = connect(Flavor::Postgres, url, lines).await;
                answer.unwrap_or_else(|error| panic!("{lines:?}: {}", error.chain()));
            }
            // Without encryption there is nothing to bind to.
            connect(Flavor::Postgres, &bound, "").await.expect_err("not bound");
            let wrong = plain.replace(PASSWORD, "wrong");
            let error = connect(Flavor::Postgres, &wrong, &full).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
        });
    }
}

each_pair! {
    /// A password that is replaced on the servers and in its file counts from the next connection on; what is connected
    /// stays so.
    async fn a_password_is_rotated(other) {
        let work = Work::new(other).await;
        let user = servers::unique("r");
        let set = |password: &str| match other {
            Flavor::MySql | Flavor::MariaDb => [
                format!("ALTER ROLE {user} PASSWORD '{password}'"),
                format!("ALTER USER '{user}'@'%' IDENTIFIED BY '{password}'"),
            ],
            Flavor::Postgres => unreachable!("the second is another"),
        };
        let (ledger, orders) = (&work.databases[0], &work.databases[1]);
        work.servers[0].query(ledger, &format!("CREATE ROLE {user} LOGIN IN ROLE {APP}")).await.unwrap();
        work.servers[1].query(orders, &format!("CREATE USER '{user}'@'%'; GRANT ALL ON {orders}.* TO '{user}'@'%'")).await.unwrap();
        if other == Flavor::MySql {
            let grant = format!("GRANT XA_RECOVER_ADMIN ON *.* TO '{user}'@'%'");
            work.servers[1].query(orders, &grant).await.unwrap();
        }
        let file = work.directory.path().join("password");
        let replace = async |password: &str| {
            for (side, statement) in set(password).iter().enumerate() {
                work.servers[side].query(&work.databases[side], statement).await.unwrap();
            }
            std::fs::write(&file, format!("{password}\n")).unwrap();
        };
        replace("the first").await;
        let lines = format!("{}\npassword_file = {file:?}\npool_size = 1", full());
        // The one in the URL is wrong: the file's takes its place.
        let [ledger_url, orders_url] = work.urls(&user, "stale");
        let config = work.config([&ledger_url, &orders_url], [&lines, &lines]);
        let config = config.section("[transaction]\ntimeout = \"5s\"\napply_wait = \"4s\"").build();
        let bridge = Bridge::open(config).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        commit(&bridge, 1).await.unwrap();

        replace("the second").await;
        commit(&bridge, 2).await.expect("on the connections that there are");
        end_sessions(&work, &user).await;
        // The resolver's session was ended too, and with it the lease: what that meets is rolled back, to be run again.
        eventually("on new ones", async || commit(&bridge, 3).await.is_ok()).await;

        // Without the file there is no connection, and an error that names it.
        std::fs::remove_file(&file).unwrap();
        end_sessions(&work, &user).await;
        let error = commit(&bridge, 4).await.unwrap_err();
        assert!(error.chain().contains("password_file"), "{:?}: {}", error.kind(), error.chain());
        replace("the third").await;
        eventually("the file is back", async || commit(&bridge, 5).await.is_ok()).await;
        bridge.close().await.unwrap();
        assert_eq!(work.rows().await, [["1", "2", "3", "5"], ["1", "2", "3", "5"]], "{NAMES:?}");
    }
}

/// Ends every session of a user, so that each has to log in anew.
async fn end_sessions(work: &Work, user: &str) {
    let end = format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{user}'");
    work.servers[0].query("postgres", &end).await.unwrap();
    let list = format!("SELECT id FROM information_schema.processlist WHERE user = '{user}'");
    for row in work.servers[1].query("mysql", &list).await.unwrap() {
        // One that has ended by itself meanwhile is as well.
        let _ = work.servers[1].query("mysql", &format!("KILL {}", row[0].as_deref().unwrap())).await;
    }
    eventually("the sessions are gone", async || work.servers[1].query("mysql", &list).await.unwrap().is_empty()).await;
}
