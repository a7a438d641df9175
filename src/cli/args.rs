//! The command line.

use super::demo::application::ApplicationArgs;
use crate::id::{BranchId, ParseIdError, ParticipantName, TransactionId};
use crate::protocol::Resolution;
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use humantime_serde::re::humantime::parse_duration;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One atomic transaction over PostgreSQL and MySQL/MariaDB: the tool for whoever is on duty after a crash.
#[derive(Debug, Parser)]
#[command(name = "handfast", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Args {
    /// The configuration of the application whose transactions this is about.
    #[arg(long, global = true, value_name = "FILE", env = "HANDFAST_CONFIG", default_value = "config/handfast.toml")]
    pub config: PathBuf,

    /// How to print on stdout; messages go to stderr.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes, the highest that applies:
  0  clean
  2  usage or configuration
  3  in doubt remains
  4  a participant could not be reached or scanned
  5  damaged: a person is needed
  6  refused: journal in use, wrong server, stale journal
  7  journal corrupt";

/// The form of what is printed. Both carry the same facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, 80 columns.
    Text,
    /// For programs: one JSON object.
    Json,
}

/// What the tool does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Moves money between throwaway servers, kills everything, recovers, counts.
    Demo(DemoArgs),

    /// The application that the demo kills.
    #[command(hide = true)]
    DemoApplication(ApplicationArgs),

    /// Checks every prerequisite of this machine and of every participant, and says what mends it.
    Doctor {
        /// Show what is good as well.
        #[arg(long)]
        all: bool,
    },

    /// Shows the configuration in force, without secrets: each option, and whether the default, the file or the environment
    /// says it.
    Config,

    /// Shows what is in doubt or prepared, ours and foreign; read-only, works beside a running application.
    List {
        /// Ends with 3 also when anything at all, a running application's work or others', has been prepared for longer
        /// than this: `5m`. For monitoring.
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        older_than: Option<Duration>,
    },

    /// Shows the same again and again, and serves it to probes and to Prometheus; until Ctrl-C.
    Watch(WatchArgs),

    /// Tells all about one transaction: what happened, what recovery will do and why, the statements to do it by hand.
    Explain {
        /// The id of a transaction or of one of its branches, also as a server lists it.
        #[arg(value_name = "ID")]
        what: String,
    },

    /// Settles what a stopped application left: commits what was decided, rolls back the rest.
    Recover {
        /// Only show what would be done.
        #[arg(long)]
        dry_run: bool,
    },

    /// Tells how a transaction ended: committed, rolled_back, in_doubt, damaged, unknown.
    Outcome {
        /// The transaction's id, or the id of one of its branches as a server lists it.
        #[arg(value_parser = transaction_id)]
        id: TransactionId,
    },

    /// Decides about a transaction whose decision was lost with the journal, or part of it.
    #[command(group = clap::ArgGroup::new("resolution").required(true))]
    Resolve {
        /// The transaction's id, or the id of one of its branches.
        #[arg(value_parser = transaction_id)]
        id: TransactionId,
        /// Commit what is prepared of it, now and whenever a participant comes back.
        #[arg(long, group = "resolution")]
        commit: bool,
        /// Roll back what is prepared of it, now and whenever a participant comes back.
        #[arg(long, group = "resolution")]
        rollback: bool,
        /// Why, for whoever reads the journal later.
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: String,
    },

    /// Closes the record of a damaged transaction that a person has dealt with.
    Forget {
        /// The transaction's id, or the id of one of its branches.
        #[arg(value_parser = transaction_id)]
        id: TransactionId,
        /// Why, for whoever reads the journal later.
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: String,
        /// Yes, the rows were compared and are right now.
        #[arg(long, required = true)]
        yes: bool,
    },

    /// Accepts the server that is found under a participant's name, after a failover or a restore.
    Adopt {
        /// The participant's name.
        participant: ParticipantName,
        /// Why, for whoever reads the journal later.
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: String,
        /// Only give up what the former server held: there is no other server.
        #[arg(long)]
        gone: bool,
    },

    /// Waits until nothing at all is prepared on any participant: the moment for backups and new replicas.
    Drain {
        /// How long to wait for that.
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
        wait: Duration,
    },

    /// Reads the journal, or repairs it.
    Journal {
        /// What to do with it.
        #[command(subcommand)]
        command: JournalCommand,
    },

    /// Creates the journal's directory, and the tables that the participants need.
    Init {
        /// Only print the SQL, and the grants that the application's user needs.
        #[arg(long)]
        print: bool,
    },

    /// Prints the completions of a shell, always as text.
    Completions {
        /// Which shell.
        shell: Shell,
    },

    /// Prints the manual page, always as text.
    Man {
        /// Write the pages of all commands into this directory instead.
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },

    /// Runs throwaway servers and prints their URLs, until Ctrl-C.
    Servers(ServerArgs),
}

/// `handfast journal`
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Checks every byte; never writes.
    Verify,
    /// Prints every record; never writes.
    Dump,
    /// Makes a corrupt journal usable again from what can be read, and keeps a copy of every file; or an older copy that is
    /// all there is, from what the participants know.
    Repair {
        /// Why: kept in the journal for ever.
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: String,
        /// Do it; without this, only show what would be done.
        #[arg(long)]
        yes: bool,
    },
}

/// Where the servers of `demo` and `servers` come from.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerArgs {
    /// PostgreSQL's folder of programs; by default the newest that is installed.
    #[arg(long, value_name = "DIR")]
    pub postgres_bin: Option<PathBuf>,

    /// A mysqld or mariadbd, its folder, or a folder with unpacked packages; by default the installed MariaDB.
    #[arg(long, value_name = "PATH")]
    pub mysql_bin: Option<PathBuf>,
}

/// `handfast watch`
#[derive(Debug, Clone, clap::Args)]
pub struct WatchArgs {
    /// The pause between two looks.
    #[arg(long, value_name = "TIME", value_parser = pause, default_value = "2s")]
    pub interval: Duration,

    /// So many looks, then end with the exit code of the last.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Serve /health, /ready and /metrics here, unencrypted: `127.0.0.1:9187`; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
}

/// `handfast demo`
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Which servers.
    #[command(flatten)]
    pub servers: ServerArgs,

    /// How long to move money before the last count.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,

    /// Where the dice begin that say what is moved and who is killed when; printed at the end.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// A time in which servers come to rest.
fn pause(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time >= Duration::from_millis(100) => Ok(time),
        Ok(_) => Err("at least 100ms: each look asks every server".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Words that say something.
fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why: it is kept for whoever asks later".into()),
        text => Ok(text.to_owned()),
    }
}

/// A transaction's id, or that of the transaction that a branch belongs to: whoever is on duty has the latter from
/// `pg_prepared_xacts`.
fn transaction_id(text: &str) -> Result<TransactionId, ParseIdError> {
    let branch: Result<BranchId, _> = text.parse();
    branch.map(|branch| branch.transaction).or_else(|_| text.parse())
}

impl Command {
    /// What `resolve` was told to do.
    pub fn resolution(commit: bool) -> Resolution {
        if commit { Resolution::Commit } else { Resolution::RollBack }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_stand_before_or_after_the_command() {
        for line in [
            "handfast --config a.toml --format json recover --dry-run",
            "handfast recover --dry-run --format json --config a.toml",
        ] {
            let args = parse(line).unwrap();
            assert_eq!(args.config, PathBuf::from("a.toml"));
            assert_eq!(args.format, Format::Json);
            assert!(matches!(args.command, Command::Recover { dry_run: true }));
        }
    }

    #[test]
    fn a_branch_id_leads_to_its_transaction() {
        for text in ["hf1.orders.9f3c2a7b11d0e842.1042", "hf1.orders.9f3c2a7b11d0e842.1042.0.3"] {
            let Command::Outcome { id } = parse(&format!("handfast outcome {text}")).unwrap().command else {
                panic!("outcome was asked for");
            };
            assert_eq!(id.to_string(), "hf1.orders.9f3c2a7b11d0e842.1042");
        }
    }

    #[test]
    fn wrong_usage_ends_with_2() {
        for line in [
            "handfast",
            "handfast frobnicate",
            "handfast outcome 12",
            "handfast demo --seconds 0",
            "handfast journal",
            "handfast journal repair",
            "handfast journal repair --yes",
            "handfast journal repair --reason ",
            "handfast watch --interval 0s",
            "handfast watch --count 0",
            "handfast watch --listen somewhere",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
        let text = parse("handfast outcome 12").unwrap_err().to_string();
        assert!(text.contains("is not a transaction id"), "{text}");
    }

    #[test]
    fn what_is_done_by_hand_needs_a_reason_and_is_said_in_full() {
        let id = "hf1.orders.9f3c2a7b11d0e842.1042";
        let wrong = [
            format!("resolve {id} --commit"),
            format!("resolve {id} --commit --reason="),
            format!("resolve {id} --reason=tested"),
            format!("resolve {id} --commit --rollback --reason=tested"),
            format!("forget {id} --reason=tested"),
            format!("forget {id} --yes"),
            String::from("adopt ledger"),
            String::from("adopt Ledger --reason=tested"),
        ];
        for line in wrong {
            assert_eq!(parse(&format!("handfast {line}")).unwrap_err().exit_code(), 2, "{line}");
        }
        let blank = Args::try_parse_from(["handfast", "adopt", "ledger", "--reason", " \t"]).unwrap_err();
        assert!(blank.to_string().contains("say why"), "{blank}");
        let Command::Resolve { commit: false, rollback: true, reason, .. } =
            parse(&format!("handfast resolve {id} --rollback --reason=tested")).unwrap().command
        else {
            panic!("a rollback was asked for");
        };
        assert_eq!(reason, "tested");
        assert!(parse(&format!("handfast forget {id} --reason=tested --yes")).is_ok());
        assert!(parse("handfast adopt ledger --gone --reason=tested").is_ok());
    }

    #[test]
    fn times_have_units() {
        let Command::Drain { wait } = parse("handfast drain").unwrap().command else { panic!("drain was asked for") };
        assert_eq!(wait, Duration::from_secs(30));
        let Command::List { older_than } = parse("handfast list --older-than 5m").unwrap().command else {
            panic!("the list was asked for");
        };
        assert_eq!(older_than, Some(Duration::from_secs(300)));
        assert_eq!(parse("handfast drain --wait 30").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn help_tells_the_exit_codes() {
        let help = Args::command().render_long_help().to_string();
        for word in [
            "demo",
            "config",
            "doctor",
            "list",
            "watch",
            "explain",
            "recover",
            "resolve",
            "forget",
            "adopt",
            "drain",
            "completions",
            "man",
            "outcome",
            "journal",
            "init",
            "servers",
            "a person is needed",
        ] {
            assert!(help.contains(word), "{word} in {help}");
        }
        assert!(!help.contains("demo-application"), "{help}");
    }
}
