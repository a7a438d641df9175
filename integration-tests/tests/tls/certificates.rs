//! Whom a participant talks to, and whom not.

use crate::stage::{self, APP, CERTIFIED, NAME, PASSWORD, PKI, STRICT, connect, database, shared, url};
use handfast::ErrorKind;
use integration_tests::each_server;
use integration_tests::servers::{self, Flavor, Server};

/// Where, as whom, and with which lines.
struct Attempt<'a> {
    server: &'a Server,
    host: &'static str,
    user: &'static str,
}

impl Attempt<'_> {
    async fn with(&self, lines: &str) -> Result<String, handfast::Error> {
        let flavor = self.server.flavor();
        let url = url(self.server, self.user, PASSWORD, self.host, database(flavor));
        connect(flavor, &url, lines).await
    }

    async fn works(&self, lines: &str) {
        let answer = self.with(lines).await;
        let product = self.server.flavor().product();
        let answer = answer.unwrap_or_else(|error| panic!("{lines} at {}: {}", self.host, error.chain()));
        assert!(answer.starts_with(product), "{answer}");
    }

    /// It is for a person to mend, who is told what and how.
    async fn is_refused(&self, lines: &str, why: &[&str]) {
        let error = self.with(lines).await.expect_err(lines);
        assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
        let said = error.chain();
        assert!(why.iter().any(|why| said.contains(why)), "{lines}: {said}");
        assert!(!said.contains(PASSWORD), "{said}");
    }
}

/// What the library of this build says, rustls or the system's.
const STRANGER: &[&str] = if cfg!(feature = "rustls") { &["UnknownIssuer"] } else { &["tls_ca is the file"] };
const ANOTHER_NAME: &[&str] = if cfg!(feature = "rustls") { &["not valid for name"] } else { &["mismatch"] };
const EXPIRED: &[&str] = if cfg!(feature = "rustls") { &["certificate expired"] } else { &["certificate has expired"] };

fn ca(mode: &str, file: &str) -> String {
    format!("tls = \"{mode}\"\n{}", PKI.trusting(file))
}

each_server! {
    /// The certificate is for localhost; 127.0.0.1 is another name for nobody but the network.
    async fn the_authority_and_the_name_count(flavor) {
        let server = shared(flavor).await;
        let localhost = Attempt { server, host: "localhost", user: APP };
        let address = Attempt { server, host: "127.0.0.1", user: APP };
        let full = ca("verify-full", "ca.pem");
        localhost.works(&full).await;
        address.is_refused(&full, &["tls_server_name is the name"]).await;
        address.works(&format!("{full}\ntls_server_name = \"{NAME}\"")).await;
        localhost.is_refused(&format!("{full}\ntls_server_name = \"other.example\""), ANOTHER_NAME).await;
        address.works(&ca("verify-ca", "ca.pem")).await;

        for attempt in [&localhost, &address] {
            attempt.is_refused(&ca("verify-full", "other-ca.pem"), STRANGER).await;
            attempt.is_refused(&ca("verify-ca", "other-ca.pem"), STRANGER).await;
            attempt.works("tls = \"require\"").await;
        }
        // The system trusts neither, if it trusts anybody.
        let unknown = localhost.with("tls = \"verify-full\"").await.unwrap_err().chain();
        assert!(STRANGER.iter().any(|said| unknown.contains(said)) || unknown.contains("ca-certificates"), "{unknown}");
    }

    async fn an_expired_certificate_is_refused(flavor) {
        let server = stage::encrypting(flavor, PKI.authority.expired_server(&["localhost"])).await;
        let localhost = Attempt { server: &server, host: "localhost", user: APP };
        for mode in ["verify-full", "verify-ca"] {
            localhost.is_refused(&ca(mode, "ca.pem"), EXPIRED).await;
        }
        localhost.works("tls = \"require\"").await;
    }

    async fn a_server_that_demands_encryption_gets_it(flavor) {
        let server = shared(flavor).await;
        let strict = Attempt { server, host: "localhost", user: STRICT };
        strict.works(&ca("verify-full", "ca.pem")).await;
        strict.is_refused("tls = \"disable\"", &["rejects connection", "Access denied"]).await;
    }

    async fn a_server_that_demands_a_certificate_gets_it(flavor) {
        let server = shared(flavor).await;
        let certified = Attempt { server, host: "localhost", user: CERTIFIED };
        if cfg!(not(feature = "rustls")) && flavor != Flavor::Postgres {
            // The driver takes a key of the system's library in a form that we do not ask anybody for.
            let error = certified.with(&format!("tls = \"verify-full\"\n{}", PKI.showing("client"))).await;
            let error = error.expect_err("it is refused before anything is sent");
            assert!(error.chain().contains("need the feature `rustls`"), "{}", error.chain());
            return;
        }
        certified.works(&PKI.showing("client").replace("tls_ca", "tls = \"verify-full\"\ntls_ca")).await;
        let without = ca("verify-full", "ca.pem");
        certified.is_refused(&without, &["valid client certificate", "Access denied"]).await;
        let other = PKI.showing("other-client").replace("tls_ca", "tls = \"verify-full\"\ntls_ca");
        let error = certified.with(&other).await.expect_err("a certificate of somebody else");
        assert!(error.chain().contains("localhost"), "{}", error.chain());
    }

    /// Nothing goes in the clear because the server cannot do better.
    async fn a_server_without_encryption_is_refused(flavor) {
        let own;
        let server = match flavor {
            Flavor::MySql => {
                own = servers::start_with(flavor, servers::options().with("tls-version", "")).await;
                &own
            }
            flavor => servers::shared(flavor).await,
        };
        let user = if flavor == Flavor::Postgres { "postgres" } else { "root" };
        let url = url(server, user, "", "127.0.0.1", database(flavor));
        connect(flavor, &url, "").await.unwrap();
        for mode in ["require", "verify-ca", "verify-full"] {
            let error = connect(flavor, &url, &format!("tls = \"{mode}\"")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
            assert!(error.chain().contains("does not offer TLS"), "{}", error.chain());
        }
    }
}
