//! On real files: locks, refusals, reading beside a writer, group commit.

use super::disk::{Disk, Faults};
use super::samples::{commit, decision, done, id, opening, participant, wait};
use crate::ErrorKind;
use crate::config::JournalConfig;
use crate::journal::format::{self, Entry};
use crate::journal::{FileStorage, Journal, Verdict, read, read_from};
use crate::protocol::{Absence, Record};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// A settled incarnation stays so through reopening and compaction, whether anything of it committed or not, and its
/// open decisions stay open.
#[test]
fn what_is_settled_stays_settled() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let journal = Journal::open(&config, opening(1)).unwrap();
    wait(journal.append(commit(1, 1))).unwrap();
    wait(journal.append(commit(1, 2))).unwrap();
    journal.note(done(1, 2));
    journal.close().unwrap();
    Journal::open(&config, opening(2)).unwrap().close().unwrap();

    let journal = Journal::open(&config, opening(3)).unwrap();
    assert_eq!(journal.image(|image| image.unsettled().count()), 3);
    journal.note(Record::OnePhase(id(1, 3)));
    for _ in 0..2 {
        wait(journal.append(Record::Settled(opening(1).incarnation, Absence::Unproven))).unwrap();
        wait(journal.append(Record::Settled(opening(2).incarnation, Absence::RolledBack))).unwrap();
    }
    journal.close().unwrap();
    for next in 4..6 {
        let journal = Journal::open(&config, opening(next)).unwrap();
        journal.image(|image| {
            assert_eq!(image.settled(opening(1).incarnation), Some(Absence::Unproven));
            assert_eq!(image.settled(opening(2).incarnation), Some(Absence::RolledBack));
            assert!(!image.is_settled(opening(3).incarnation), "nobody said so");
            assert!([1, 2, 3].iter().all(|sequence| image.is_committed(id(1, *sequence))));
            assert_eq!(image.open_decisions().count(), 1);
        });
        journal.close().unwrap();
    }
    let journal = Journal::open(&config, opening(6)).unwrap();
    journal.note(done(1, 1));
    journal.note(Record::OnePhase(id(1, 3)));
    journal.close().unwrap();
    assert_eq!(read(directory.path()).unwrap().image.open_decisions().count(), 0);
}

/// Nothing commits behind a settled incarnation's back, and none that is at work is settled.
#[test]
fn a_settled_incarnation_commits_nothing_more() {
    let disk = Disk::default();
    drop(Journal::open_on(disk.clone(), 1 << 16, opening(1)).unwrap());
    let journal = Journal::open_on(disk.clone(), 1 << 16, opening(2)).unwrap();
    wait(journal.append(Record::Settled(opening(1).incarnation, Absence::RolledBack))).unwrap();
    let contradictions = [
        commit(1, 1),
        Record::OnePhase(id(1, 1)),
        Record::Settled(opening(2).incarnation, Absence::RolledBack),
        Record::Settled(opening(7).incarnation, Absence::RolledBack),
    ];
    for record in contradictions {
        let append = std::panic::AssertUnwindSafe(|| wait(journal.append(record.clone())));
        assert!(std::panic::catch_unwind(append).is_err(), "{record:?}");
    }
    drop(journal);
    assert_eq!(read_from(&disk).unwrap().verdict, Verdict::Clean);
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
        let latest = read(path).unwrap().latest_incarnation;
        assert_eq!(latest, Some(opening(1).incarnation), "a reader knows whose transactions may be at work");
    }
    journal.close().unwrap();
    Journal::open(&config(&link), opening(2)).unwrap();
}

/// Many tasks append at once: each is answered, each is there, and they share syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_share_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(&config(directory.path()), opening(1)).unwrap());
    let tasks: Vec<_> = (0..64_u64)
        .map(|task| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move {
                for turn in 0..25 {
                    let sequence = 1 + task * 25 + turn;
                    journal.append(commit(1, sequence)).await.unwrap();
                    assert!(journal.image(|image| image.is_committed(id(1, sequence))), "durable is in the image");
                    journal.note(done(1, sequence));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let journal = Arc::into_inner(journal).unwrap();
    let image = journal.image(Clone::clone);
    assert_eq!((image.committed_count(), image.open_decisions().len()), (1600, 0));
    journal.close().unwrap();
    let found = read(directory.path()).unwrap();
    assert_eq!((found.verdict, found.in_doubt.len()), (Verdict::Clean, 0));
    assert_eq!(found.image, image, "through rotations and compactions");
}

/// Batches gather while another is synced: fewer syncs than records.
#[test]
fn waiting_appends_share_one_sync() {
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), 1 << 20, opening(1)).unwrap();
    disk.set_faults(Faults::default());
    wait(async {
        let appends = (1..=500).map(|sequence| journal.append(commit(1, sequence)));
        futures_util::future::try_join_all(appends).await.unwrap();
    });
    let log = disk.take_log();
    let syncs = log.iter().filter(|line| line.starts_with("sync segment")).count();
    assert!(syncs < 250, "{syncs} syncs for 500 records");
    drop(journal);
}

/// J9: a contradiction is a bug of the caller: it panics there, and never reaches the disk.
#[test]
fn a_contradiction_panics_before_it_is_written() {
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), 1 << 16, opening(1)).unwrap();
    wait(journal.append(commit(1, 1))).unwrap();
    let queued = journal.append(commit(1, 2));
    let mut queued = Box::pin(queued);
    let waker = std::task::Waker::noop();
    let _ = queued.as_mut().poll(&mut std::task::Context::from_waker(waker));
    let contradictions =
        [commit(1, 1), commit(1, 2), commit(7, 1), Record::OnePhase(id(1, 1)), Record::OnePhase(id(1, 2))];
    for record in contradictions {
        let append = std::panic::AssertUnwindSafe(|| wait(journal.append(record.clone())));
        assert!(std::panic::catch_unwind(append).is_err(), "{record:?}");
    }
    let note = std::panic::AssertUnwindSafe(|| journal.note(done(1, 3)));
    assert!(std::panic::catch_unwind(note).is_err());
    wait(journal.append(commit(1, 3))).unwrap();
    drop(queued);
    drop(journal);
    assert_eq!(read_from(&disk).unwrap().image.committed_count(), 3);
}

/// An append whose future is dropped is not taken back.
#[test]
fn a_dropped_append_still_happens() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(&config(directory.path()), opening(1)).unwrap();
    let mut append = Box::pin(journal.append(commit(1, 1)));
    let waker = std::task::Waker::noop();
    // Ready already if the disk is quick.
    let _ = append.as_mut().poll(&mut std::task::Context::from_waker(waker));
    drop(append);
    journal.close().unwrap();
    assert!(read(directory.path()).unwrap().image.is_committed(id(1, 1)));
}

#[test]
fn what_comes_after_close_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(&config(directory.path()), opening(1)).unwrap();
    journal.close().unwrap();
    assert_eq!(wait(journal.append(commit(1, 1))).unwrap_err().kind(), ErrorKind::Closed);
    assert!(!journal.image(|image| image.is_committed(id(1, 1))));
    journal.close().unwrap();
}

/// A reader beside a writer that rotates and compacts never sees damage, and never loses what was acknowledged
/// before it began to read.
#[test]
fn reading_beside_a_busy_writer_never_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    let journal = Journal::open_on(FileStorage::new(&path).unwrap(), 2048, opening(1)).unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (acknowledged, ended) = (Arc::clone(&acknowledged), Arc::clone(&ended));
        move || {
            let mut readings = 0;
            while !ended.load(Ordering::SeqCst) || readings < 5 {
                let before = acknowledged.load(Ordering::SeqCst);
                let found = read(&path).unwrap();
                assert!(!matches!(found.verdict, Verdict::Corrupt(_)), "{:?}", found.verdict);
                let mut image = found.image;
                found.in_doubt.iter().for_each(|record| image.apply(record).unwrap());
                assert!(image.committed_count() >= before, "{} of {before}", image.committed_count());
                readings += 1;
            }
            readings
        }
    });
    for sequence in 1..=600 {
        wait(journal.append(commit(1, sequence))).unwrap();
        acknowledged.store(sequence, Ordering::SeqCst);
        journal.note(done(1, sequence));
    }
    ended.store(true, Ordering::SeqCst);
    assert!(reader.join().unwrap() >= 5);
    journal.close().unwrap();
}

fn refusal(config: &JournalConfig, opened: bool) -> (ErrorKind, String) {
    let error =
        if opened { Journal::open(config, opening(9)).unwrap_err() } else { read(&config.directory).unwrap_err() };
    (error.kind(), error.chain())
}

/// Each names the thing and the cure.
#[test]
fn what_is_no_journal_directory_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = config(&scratch.path().join("missing"));
    let file = config(&scratch.path().join("file"));
    std::fs::write(&file.directory, "text").unwrap();
    for opened in [true, false] {
        let (kind, text) = refusal(&missing, opened);
        assert_eq!(kind, ErrorKind::Config);
        assert!(
            text.contains("missing") && text.contains("does not exist: create it, or run `handfast init`"),
            "{text}"
        );
        let (kind, text) = refusal(&file, opened);
        assert_eq!(kind, ErrorKind::Config);
        assert!(text.contains("is not a directory"), "{text}");
    }
    assert!(!missing.directory.exists(), "nothing is created by the way");
    let empty = config(&scratch.path().join("empty"));
    std::fs::create_dir(&empty.directory).unwrap();
    let (kind, text) = refusal(&empty, false);
    assert_eq!(kind, ErrorKind::Config);
    assert!(text.contains("there is no journal in") && text.contains("handfast init"), "{text}");
    assert_eq!(std::fs::read_dir(&empty.directory).unwrap().count(), 0, "reading never writes");
}

/// `handfast init` creates directory and journal, leaves them alone the second time, even beside a running program.
#[test]
fn a_journal_is_created_once() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(&scratch.path().join("a/b/journal"));
    let id = Journal::create_if_absent(&config).unwrap();
    assert_eq!(Journal::create_if_absent(&config).unwrap(), id);
    let found = read(&config.directory).unwrap();
    assert_eq!((found.journal, found.verdict, found.entries.len()), (Some(id), Verdict::Clean, 0));
    let journal = Journal::open(&config, opening(1)).unwrap();
    assert_eq!((journal.id(), Journal::create_if_absent(&config).unwrap()), (id, id));
}

/// D09, D47, J2: an initialised directory whose segments are gone, empty, headerless, cut or another journal's is
/// refused with the file's name, by opening and by `init`; nothing is made anew.
#[test]
fn d47_a_damaged_journal_is_refused_and_still_shown() {
    let pristine = tempfile::tempdir().unwrap();
    let journal = Journal::open_on(FileStorage::new(pristine.path()).unwrap(), 1024, opening(1)).unwrap();
    (1..=20).for_each(|sequence| wait(journal.append(commit(1, sequence))).unwrap());
    journal.close().unwrap();
    let segments: Vec<_> =
        (1..).map(|n| format!("segment-{n:08}")).take_while(|name| pristine.path().join(name).exists()).collect();
    assert!(segments.len() >= 3, "{segments:?}");
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 6] = [
        ("missing", |path| std::fs::remove_file(path).unwrap()),
        ("empty", |path| std::fs::write(path, "").unwrap()),
        ("begin", |path| std::fs::write(path, "#!/bin/sh\n").unwrap()),
        ("header", |path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..40]).unwrap();
        }),
        ("header", |path| overwrite(path, 20)),
        ("no valid entry", |path| overwrite(path, 80)),
    ];
    for segment in &segments {
        for (word, harm) in harms {
            let copy = tempfile::tempdir().unwrap();
            for entry in std::fs::read_dir(pristine.path()).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
            harm(&copy.path().join(segment));
            let names = |path: &Path| std::fs::read_dir(path).unwrap().count();
            let before = names(copy.path());
            let config = config(copy.path());
            let (kind, text) = refusal(&config, true);
            assert_eq!(kind, ErrorKind::Corrupt, "{segment}, {word}: {text}");
            assert!(text.contains(segment) && text.contains(word) && text.contains("offset"), "{segment}: {text}");
            assert_eq!(Journal::create_if_absent(&config).unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(names(copy.path()), before, "nothing was added or removed");
            let found = read(copy.path()).unwrap();
            assert!(
                matches!(&found.verdict, Verdict::Corrupt(damage) if damage.file == *segment),
                "{:?}",
                found.verdict
            );
            let shown = found.entries.iter().filter(|entry| matches!(entry.entry, Entry::Record(Record::Commit(_))));
            let lost = if word == "no valid entry" { 3 } else { 9 };
            assert!(shown.count() >= 20 - lost, "{segment}, {word}: what can be read is shown");
        }
    }
    for segment in &segments {
        std::fs::remove_file(pristine.path().join(segment)).unwrap();
    }
    let (kind, text) = refusal(&config(pristine.path()), true);
    assert_eq!(kind, ErrorKind::Corrupt);
    assert!(text.contains("was initialised for journal") && text.contains("no segment any more"), "{text}");
}

/// A hundred bytes in the middle.
pub fn overwrite(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset..offset + 100].fill(0x5a);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_later_format_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    Journal::open(&config(directory.path()), opening(1)).unwrap().close().unwrap();
    let path = directory.path().join("segment-00000001");
    let mut bytes = std::fs::read(&path).unwrap();
    // The version is the first field of the header's content; then the frame is sealed anew.
    let (frame, content) = (format::HEADER_AT, format::HEADER_AT + format::CONTENT_AT);
    bytes[content..content + 4].copy_from_slice(&2_u32.to_le_bytes());
    let mut sealed = (frame as u64).to_le_bytes().to_vec();
    sealed.extend_from_slice(&bytes[frame..frame + 4]);
    sealed.extend_from_slice(&bytes[frame + format::TYPE_AT..format::HEADER_END]);
    bytes[frame + 4..frame + 8].copy_from_slice(&crc32c::crc32c(&sealed).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    for opened in [true, false] {
        let (kind, text) = refusal(&config(directory.path()), opened);
        assert_eq!(kind, ErrorKind::Refused);
        assert!(text.contains("format version 2") && text.contains("use the version that wrote it"), "{text}");
    }
}

/// A directory that cannot be written says so. (Root may write almost anywhere, but not here.)
#[test]
fn a_read_only_directory_is_refused() {
    let Some(directory) = ["/sys/kernel", "/proc/self"].map(Path::new).into_iter().find(|path| path.is_dir()) else {
        return;
    };
    let (kind, text) = refusal(&config(directory), true);
    assert!(matches!(kind, ErrorKind::Config | ErrorKind::Journal), "{text}");
    assert!(text.contains("cannot be written"), "{text}");
}

/// The lock file may be deleted under a live journal: nobody else gets in, and the next opening makes it anew.
#[test]
fn deleting_the_lock_file_lets_nobody_in() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let journal = Journal::open(&config, opening(1)).unwrap();
    std::fs::remove_file(directory.path().join("lock")).unwrap();
    assert_eq!(refusal(&config, true).0, ErrorKind::Refused);
    wait(journal.append(commit(1, 1))).unwrap();
    journal.close().unwrap();
    let journal = Journal::open(&config, opening(2)).unwrap();
    assert!(journal.image(|image| image.is_committed(id(1, 1))));
    journal.close().unwrap();
    let promise = std::fs::read_to_string(directory.path().join("lock")).unwrap();
    assert!(promise.starts_with("handfast journal ") && promise.contains(" initialised"), "{promise}");
}
