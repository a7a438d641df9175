//! Arbitrary bytes as a journal.

use bolero::check;
use handfast::journal::{Journal, Verdict, read_from};
use handfast::protocol::{CommitRecord, DecidedBranch, Record, Remark};
use handfast_fuzz::directory::Directory;
use handfast_fuzz::edits::{Edit, corpus, edited};
use handfast_fuzz::journals::{examine, opening};
use handfast_fuzz::seal::seal;
use std::time::Duration;

/// The first byte of an input says whether checksums are put right.
fn directory(input: &[u8]) -> Directory {
    let Some((flags, packed)) = input.split_first() else { return Directory::default() };
    let unpacked = Directory::unpack(packed);
    if flags % 2 == 0 {
        return unpacked;
    }
    let sealed = |(name, mut bytes): (String, Vec<u8>)| {
        seal(&mut bytes);
        (name, bytes)
    };
    unpacked.files().into_iter().map(sealed).collect()
}

#[test]
fn journal() {
    check!().with_iterations(2000).with_test_time(Duration::from_secs(5)).for_each(|input| examine(&directory(input)));
}

#[test]
fn edited_journals() {
    let sound = corpus("journal");
    let generator = bolero::produce::<(u8, bool, Vec<Edit>)>();
    let bounded = check!().with_iterations(3000).with_test_time(Duration::from_secs(5));
    bounded.with_generator(generator).for_each(|(which, sealed, edits)| {
        let mut input = edited(&sound[usize::from(*which) % sound.len()], edits);
        if let Some(flags) = input.first_mut() {
            *flags = u8::from(*sealed);
        }
        examine(&directory(&input));
    });
}

/// `cargo test -p handfast-fuzz --test journal -- --ignored`: the corpus anew, from journals that were really written.
#[test]
#[ignore = "it makes the corpus that is checked in"]
fn make_the_corpus() {
    let to = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/__fuzz__/journal/corpus");
    std::fs::create_dir_all(&to).unwrap();
    for (name, commits) in [("empty", 0), ("short", 3), ("long", 40)] {
        let directory = written(commits);
        for (flag, way) in [(0, "as-it-is"), (1, "sealed")] {
            let mut input = vec![flag];
            input.extend(directory.pack());
            std::fs::write(to.join(format!("{name}-{way}")), input).unwrap();
        }
    }
}

/// A journal of two openings, closed, with every kind of record.
fn written(commits: u64) -> Directory {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let directory = Directory::default();
    let node = opening(1).node;
    for incarnation in 1..3 {
        let journal = Journal::open_on(directory.clone(), 65536, opening(incarnation)).unwrap();
        for sequence in 1..=commits {
            let id = handfast::TransactionId { node, incarnation: opening(incarnation).incarnation, sequence };
            let branch = |number: u16, name: &str| DecidedBranch {
                id: id.branch(number, 3),
                participant: name.parse().unwrap(),
                lineage: handfast::id::Lineage(7 + u64::from(number)),
            };
            let branches = vec![branch(0, "ledger"), branch(1, "orders")];
            let decision = CommitRecord { transaction: id, branches, payload: None };
            runtime.block_on(journal.append(Record::Commit(decision))).unwrap();
            if sequence % 3 > 0 {
                journal.note(Record::Done(id));
            }
        }
        let reason = String::from("to have one");
        let remark = Remark { at_ms: 1_700_000_000_000, host: "here".into(), reason };
        if incarnation == 2 {
            let first = opening(1).incarnation;
            let taken = handfast::protocol::IncarnationRecord { incarnation: handfast::id::Incarnation(9), ..record() };
            runtime.block_on(journal.take_over(taken, remark)).unwrap();
            assert!(journal.image(|image| !image.is_settled(first)));
        }
        journal.close().unwrap();
    }
    directory
}

fn record() -> handfast::protocol::IncarnationRecord {
    let handfast::journal::Opening { node, incarnation, opened_at_ms, participants } = opening(0);
    handfast::protocol::IncarnationRecord { node, incarnation, opened_at_ms, participants }
}

/// A corpus that stopped being journals would test nothing.
#[test]
fn the_corpus_is_of_sound_journals() {
    for input in corpus("journal") {
        assert_eq!(read_from(&directory(&input)).unwrap().verdict, Verdict::Clean);
    }
}
