//! On real files: locks, refusals, reading beside a writer, group commit.

use super::samples::{commit, decision, done, id, opening, participant, wait};
use crate::ErrorKind;
use crate::config::JournalConfig;
use crate::journal::{Journal, Verdict, read};
use crate::protocol::Record;
use std::path::Path;

pub fn config(directory: &Path) -> JournalConfig {
    JournalConfig { directory: directory.to_path_buf(), segment_bytes: 64 * 1024 }
}

#[test]
fn what_was_appended_and_noted_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let journal = Journal::open(&config, opening(1)).unwrap();
    let journal_id = journal.id();
    wait(journal.append(participant("ledger", 7))).unwrap();
    wait(journal.append(Record::Commit(decision(id(1, 1), Some((b"offsets", b"42")))))).unwrap();
    wait(journal.append(commit(1, 2))).unwrap();
    journal.note(done(1, 2));
    journal.note(Record::OnePhase(id(1, 3)));
    assert!(journal.image(|image| image.is_committed(id(1, 3))), "a noted record counts at once");
    let before = journal.image(Clone::clone);
    journal.close().unwrap();

    let offline = read(directory.path()).unwrap();
    assert_eq!((offline.journal, &offline.verdict), (Some(journal_id), &Verdict::Clean));
    assert_eq!((&offline.image, offline.in_doubt.len()), (&before, 0));

    let journal = Journal::open(&config, opening(2)).unwrap();
    assert_eq!(journal.id(), journal_id);
    journal.image(|image| {
        assert!(image.knows(opening(1).incarnation) && image.knows(opening(2).incarnation));
        assert!([1, 2, 3].iter().all(|sequence| image.is_committed(id(1, *sequence))) && !image.is_committed(id(1, 4)));
        assert_eq!(image.open_decisions().map(|decision| decision.transaction).collect::<Vec<_>>(), [id(1, 1)]);
        assert_eq!(image.payload(b"offsets"), Some((id(1, 1), b"42".as_slice())));
    });
    journal.close().unwrap();
}

/// D10: the second opening is refused and names the first, by whatever path it comes.
#[test]
fn d10_a_second_opening_is_refused_and_names_the_holder() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(&config(directory.path()), opening(1)).unwrap();
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    for path in [directory.path(), &link] {
        let error = Journal::open(&config(path), opening(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(&format!("process {} on ", std::process::id())), "{error}");
        assert_eq!(read(path).unwrap().journal, Some(journal.id()), "reading needs no lock");
    }
    journal.close().unwrap();
    Journal::open(&config(&link), opening(2)).unwrap();
}
