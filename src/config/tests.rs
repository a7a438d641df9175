use super::*;
use crate::ErrorKind;
use std::time::Duration;

const MINIMAL: &str = r#"
    node = "n"
    journal.directory = "/j"
    participants.ledger = { kind = "postgres", url = "postgresql://app:secret@db1/ledger" }
"#;

fn refused(extra: &str) -> String {
    let error = Config::from_toml(&format!("{extra}\n{MINIMAL}")).expect_err(extra);
    assert_eq!(error.kind(), ErrorKind::Config);
    error.chain()
}

/// The sample documents every option, at its default.
#[test]
fn the_sample_says_what_the_code_does() {
    let sample = include_str!("../../config/handfast.toml");
    // What is commented out as an option has to be one; what has no default in the code has none in the sample.
    let optional = ["lock_timeout", "password", "tls", "schema", "pool_size", "settings"];
    let all =
        optional.iter().fold(sample.to_owned(), |all, key| all.replace(&format!("\n# {key}"), &format!("\n{key}")));
    let all = Config::from_toml(&all).expect("every option in the sample exists");
    assert_eq!(all.transaction.lock_timeout, Some(TransactionConfig::default().effective_lock_timeout()));

    let sampled = Config::from_toml(sample).expect("the sample is valid");
    assert_eq!(format!("{:?}", sampled.transaction), format!("{:?}", TransactionConfig::default()));
    assert_eq!(format!("{:?}", sampled.recovery), format!("{:?}", RecoveryConfig::default()));
    assert_eq!(format!("{:?}", sampled.pool), format!("{:?}", PoolConfig::default()));
    assert_eq!(sampled.journal.segment_bytes, JournalConfig::default().segment_bytes);
    let bare = Config::from_toml(MINIMAL).expect("the rest has defaults");
    let participant = &sampled.participants[&"ledger".parse().unwrap()];
    let default = &bare.participants[&"ledger".parse().unwrap()];
    assert_eq!((participant.witness, participant.tls), (default.witness, Some(Tls::VerifyFull)));
    assert_eq!(participant.allow_unsafe, default.allow_unsafe);
}

/// Every option of the code is in the sample: a new one cannot stay undocumented.
#[test]
fn the_sample_has_every_option() {
    let sample = include_str!("../../config/handfast.toml");
    let options = Config::from_toml(sample).expect("the sample is valid").options();
    let below = |section: &str| sample.split(&format!("\n[{section}]\n")).nth(1).unwrap_or(sample);
    for option in options.iter().filter(|option| !option.starts_with("participants.orders.")) {
        let (section, key) = option.rsplit_once('.').unwrap_or(("", option));
        let documented = below(section).split("\n[").next().unwrap();
        let is_there = ["\n", "\n# "].iter().any(|at| format!("\n{documented}").contains(&format!("{at}{key} = ")));
        assert!(is_there, "config/handfast.toml does not document {option}");
    }
    assert!(options.len() >= 35, "only {} options: this test does not see them all", options.len());
}

#[test]
fn unknown_keys_and_bad_values_are_named() {
    assert!(refused("transaction.timeuot = \"3s\"").contains("timeuot"));
    assert!(refused("transaction.timeout = \"3 parsecs\"").contains("timeout"));
    assert!(refused("transaction.timeout = \"0s\"").contains("transaction.timeout"));
    assert!(refused("transaction.acknowledge = \"maybe\"").contains("\"maybe\" is not \"applied\" or \"decided\""));
    assert!(refused("pool.size = 0").contains("pool of size 0"));
    for key in ["recovery.interval", "recovery.backoff_min", "recovery.statement_timeout", "pool.connect_timeout"] {
        assert!(refused(&format!("{key} = \"0s\"")).contains(key));
    }
    assert!(refused("recovery.backoff_min = \"1h\"").contains("backoff_max"));
    assert!(refused("transaction.lock_timeout = \"40s\"").contains("lock_timeout"));
    assert!(refused("journal.segment_bytes = 5").contains("65536"));
    assert!(refused("participants.Orders = { kind = \"mysql\", url = \"\" }").contains("Orders"));
    let oracle = refused("participants.o = { kind = \"oracle\", url = \"\" }");
    assert!(oracle.contains("\"oracle\" is not \"postgres\" or \"mysql\""), "{oracle}");
    assert!(refused("participants.o = { kind = \"mysql\", url = \"\", tls = \"prefer\" }").contains("tls"));
}

#[test]
fn errors_quote_no_password() {
    for line in [
        "participants.o = \"mysql://app:secret@db\"",
        "participants.o = \"host=db password=secret\"",
        "participants.o.url = \"mysql://app:secret@db",
        "participants.o = { kind = \"mysql://app:secret@db\", url = \"\" }",
    ] {
        let text = refused(line);
        assert!(!text.contains("secret") && !text.contains('\n'), "{text}");
    }
}

/// As `Environment` passes on what it finds, which no test may change for the others.
#[test]
fn the_environment_is_taken_by_what_it_is_for() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("handfast.toml");
    std::fs::write(&file, MINIMAL).unwrap();
    let of = |key: &str, value: &str| (format!("HANDFAST__{key}"), value.to_owned());
    let variables = [
        of("PARTICIPANTS__LEDGER__PASSWORD", "007"),
        of("PARTICIPANTS__LEDGER__POOL_SIZE", "7"),
        of("PARTICIPANTS__LEDGER__WITNESS", "false"),
        of("TRANSACTION__TIMEOUT", "7s"),
        of("JOURNAL__SEGMENT_BYTES", "65536"),
    ];
    let (config, sources) = Config::read(&file, Some(variables.into_iter().collect())).unwrap();
    let ledger = config.participants.values().next().unwrap();
    assert_eq!(ledger.password, Some("007".into()));
    assert_eq!((ledger.pool_size, ledger.witness), (Some(7), false));
    assert_eq!((config.transaction.timeout, config.journal.segment_bytes), (Duration::from_secs(7), 65536));
    assert_eq!(sources.of("transaction.timeout"), Source::Environment);
    assert_eq!(sources.of("participants.ledger.url"), Source::File);
    assert_eq!(sources.of("transaction.retries"), Source::Default);
}

#[test]
fn what_is_misspelt_is_refused_with_what_was_meant() {
    for (line, meant) in [
        ("transaction.timeuot = \"3s\"", "transaction.timeuot is unknown: did you mean transaction.timeout?"),
        ("nod = \"x\"", "nod is unknown: did you mean node?"),
        ("timeout = \"3s\"", "timeout is unknown: did you mean transaction.timeout?"),
        ("journals.directory = \"/j\"", "journals is unknown: did you mean journal?"),
        ("pool.colour = 1", "pool.colour is unknown: there are size, connect_timeout"),
        (
            "participants.o = { kind = \"mysql\", uri = \"\" }",
            "participants.o.uri is unknown: did you mean participants.o.url?",
        ),
        ("participants.legder.pool_size = 3", "participants.legder has no kind: did you mean participants.ledger?"),
    ] {
        assert_eq!(refused(line), format!("configuration: {meant}"));
    }
    let two = refused("pool.sizes = 1\nrecovery.open-wait = \"1s\"");
    assert!(two.contains("did you mean pool.size?; recovery.open-wait"), "{two}");
}

/// In the words of the environment, where the mistake is there.
#[test]
fn the_environments_misspellings_are_refused_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("handfast.toml");
    std::fs::write(&file, MINIMAL).unwrap();
    for (name, meant) in [
        ("TRANSACTION__TIMEUOT", "HANDFAST__TRANSACTION__TIMEOUT?"),
        ("TRANSACTOIN__TIMEOUT", "HANDFAST__TRANSACTION__..?"),
        ("PARTICIPANTS__LEDGER__PASWORD", "HANDFAST__PARTICIPANTS__LEDGER__PASSWORD?"),
        ("PARTICIPANTS__LEGDER__PASSWORD", "HANDFAST__PARTICIPANTS__LEDGER__..?"),
    ] {
        let variables = [(format!("HANDFAST__{name}"), String::from("hush"))];
        let error = Config::read(&file, Some(variables.into_iter().collect())).unwrap_err().chain();
        assert!(error.contains(&format!("did you mean {meant}")) && !error.contains("hush"), "{error}");
    }
}

#[test]
fn sizes_and_times_ask_for_their_units() {
    let of = |line: &str| Config::from_toml(&format!("{line}\n{MINIMAL}")).unwrap();
    for line in ["journal.segment_bytes = 1048576", "journal.segment_bytes = \"1 MiB\""] {
        assert_eq!(of(line).journal.segment_bytes, 1 << 20);
    }
    for line in ["journal.segment_bytes = \"1 mile\"", "journal.segment_bytes = -1"] {
        let text = refused(line);
        assert!(text.contains("a size such as \"16 MiB\"") && text.contains("segment_bytes"), "{text}");
    }
    for line in ["transaction.timeout = 30", "transaction.timeout = \"30\""] {
        let text = refused(line);
        assert!(text.contains("transaction.timeout"), "{text}");
    }
}

/// Whoever shows a configuration shows no secret, and what he shows can be read.
#[test]
fn a_configuration_serializes_without_secrets() {
    let mut config = Config::from_toml(MINIMAL).unwrap();
    let ledger = config.participants.values_mut().next().unwrap();
    ledger.password = Some("hush".into());
    let shown = config::Config::try_from(&config).unwrap().cache.to_string();
    assert!(!shown.contains("secret") && !shown.contains("hush"), "{shown}");
    let options = config.options();
    for name in ["node", "journal.directory", "transaction.timeout", "participants.ledger.tls_ca"] {
        assert!(options.iter().any(|option| option == name), "{name} in {options:?}");
    }
    assert!(shown.contains("postgresql://app@db1/ledger") && shown.contains("16 MiB"), "{shown}");
}

/// With an anchor there is no journal to name; without one there is.
#[test]
fn an_anchor_needs_no_journal() {
    let of = |decision: &str, extra: &str| {
        let text =
            format!("node = \"n\"\n{decision}\nparticipants.ledger = {{ kind = \"postgres\", url = \"u\"{extra} }}");
        Config::from_toml(&text)
    };
    let anchored = of("transaction.decision = \"ledger\"", "").unwrap();
    assert_eq!(anchored.transaction.decision.anchor().map(|name| name.to_string()), Some("ledger".into()));
    assert!(!anchored.journal.is_set());
    let refused = |result: Result<Config>| result.map(|_| ()).unwrap_err().chain();
    assert!(refused(of("", "")).contains("missing field `directory`"));
    assert!(refused(of("transaction.decision = \"journal\"", "")).contains("missing field `directory`"));
    assert!(refused(of("transaction.decision = \"ledger\"", ", witness = false")).contains("witness"));
    assert!(refused(of("transaction.decision = \"Ledger!\"", "")).contains("neither"));
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load("/nowhere/handfast.toml").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.chain().contains("/nowhere/handfast.toml"), "{}", error.chain());
}

#[test]
fn passwords_are_never_printed() {
    let config = Config::from_toml(MINIMAL).unwrap();
    assert!(!format!("{config:?}").contains("secret"));
    let url = |url: &str| {
        let mut one = config.participants.values().next().unwrap().clone();
        one.url = url.into();
        one.url_without_password()
    };
    assert_eq!(url("mysql://app:p@ss:w@db2:3306/orders?x=y"), "mysql://app@db2:3306/orders");
    assert_eq!(url("mysql://db2/orders"), "mysql://db2/orders");
    assert_eq!(url("mysql://app:sec?ret@db2/orders"), "mysql://(hidden)");
    assert_eq!(url("postgresql://db1/ledger?password=secret"), "postgresql://db1/ledger");
    assert_eq!(url("host=db1 password=secret"), "(hidden)");
    for url in [
        url("host=db1 password=sec@ret"),
        url("postgresql://app:sec?ret@db1/ledger"),
        url("postgresql://db1/ledger?password=sec@ret"),
        url("postgresql://db1/ledger?user=app&password=secret"),
        url("postgresql://app:sec/r@et@db1/ledger?options=a@b"),
        url("postgresql://db1/ledger?password=a:sec@ret"),
    ] {
        assert!(!url.contains("sec") && !url.contains("ret"), "{url}");
    }
}
