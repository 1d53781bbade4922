//! A journal is read back as it was written, and does not count where it cannot be trusted.

use sawmill_engine::model::TopicSpec;
use tempfile::TempDir;

use super::*;

const BOOT: &str = "boot-1";

/// A folder for a journal.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("orders.journal")
    }

    fn open_as(&self, group: &str, boot: &str) -> Result<Journal> {
        let TopicSpec { name, shards, retention, drops_unread } = TopicSpec::new("orders".parse().unwrap());
        let topic = Topic { name, uid: "t1".to_owned(), shards, retention, drops_unread };
        Journal::open(&self.path(), &group.parse().unwrap(), &[Arc::new(topic)], boot)
    }

    fn open(&self) -> Result<Journal> {
        self.open_as("default", BOOT)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    /// Appends to the file without the journal.
    fn append(&self, bytes: &[u8]) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.path()).unwrap();
        file.write_all(bytes).unwrap();
    }

    /// Returns what the next run would find.
    fn previous(&self) -> Option<PreviousRun> {
        let previous = self.open().unwrap().previous();
        previous.map(|previous| Arc::into_inner(previous).unwrap())
    }
}

impl Journal {
    /// Makes every further write fail.
    pub(in super::super) fn spoil(&self) {
        let read_only = File::open(&self.path).unwrap();
        let mut open = self.lock();
        let open = open.as_mut().unwrap();
        open.files[open.current] = Some(read_only);
    }
}

fn start(journal: &Journal, ids: impl IntoIterator<Item = u128>) -> Result<()> {
    journal.started(ids.into_iter().map(|id| (MessageId::from_u128(id), 0)))
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name)
}

fn previous(workers: &[&str], started: impl IntoIterator<Item = u128>) -> Option<PreviousRun> {
    let workers = workers.iter().map(|name| worker(name)).collect();
    Some(PreviousRun {
        workers,
        started: started.into_iter().map(|id| (MessageId::from_u128(id), 0)).collect(),
    })
}

/// Writes the journal of a worker that has started these messages and was killed.
fn crashed(place: &Place, name: &str, ids: impl IntoIterator<Item = u128>) {
    let journal = place.open().unwrap();
    journal.join(&worker(name)).unwrap();
    start(&journal, ids).unwrap();
}

#[test]
fn what_was_started_is_read_back_in_the_next_life_and_the_one_after() {
    let place = Place::new();
    assert_eq!(place.previous(), None);
    crashed(&place, "a", [1, 2]);
    assert_eq!(place.previous(), previous(&["a"], [1, 2]));
    // The next run dies before it has recovered anything.
    crashed(&place, "b", [3]);
    assert_eq!(place.previous(), previous(&["a", "b"], [1, 2, 3]));
}

#[test]
fn a_message_that_is_read_again_after_a_seek_is_another_start() {
    let place = Place::new();
    let journal = place.open().unwrap();
    journal.join(&worker("a")).unwrap();
    journal.started([(MessageId::from_u128(7), 2)].into_iter()).unwrap();
    drop(journal);
    let found = place.previous().unwrap();
    assert_eq!(found.started, [(MessageId::from_u128(7), 2)].into());
}

#[test]
fn only_one_worker_uses_it_at_a_time() {
    let place = Place::new();
    let journal = place.open().unwrap();
    let error = place.open().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("another worker"), "{error}");
    journal.close();
    assert!(place.open().is_ok());
    assert!(start(&journal, [1]).is_err(), "who has let go of it starts nothing");
}

#[test]
fn a_torn_last_line_is_a_start_that_never_was() {
    let place = Place::new();
    crashed(&place, "a", [1, 2]);
    let whole = place.text();
    place.append(b"started 0000000000000000000");
    assert_eq!(place.previous(), previous(&["a"], [1, 2]));
    assert_eq!(place.text(), whole, "what follows is not read as its end");
    // The same holds for the first line of a file that was just created.
    for length in 0..20 {
        let place = Place::new();
        place.append(&whole.as_bytes()[..length]);
        assert_eq!(place.previous(), None);
    }
}

#[test]
fn a_damaged_journal_does_not_count_at_all() {
    for damage in [&b"started 0000\n"[..], &[0; 512], b"\n", b"wrokers a\n", b"\xff\xfe started\n"] {
        let place = Place::new();
        crashed(&place, "a", [1]);
        place.append(damage);
        place.append(format!("started {} 0\n", MessageId::from_u128(2)).as_bytes());
        assert_eq!(place.previous(), None, "{damage:?}");
        crashed(&place, "b", [3]);
        assert_eq!(place.previous(), previous(&["b"], [3]), "it begins anew");
    }
}

#[test]
fn it_does_not_count_when_the_machine_was_restarted() {
    let place = Place::new();
    crashed(&place, "a", [1]);
    assert_eq!(place.open_as("default", "boot-2").unwrap().previous(), None);
    assert_eq!(place.previous(), None, "nor ever after");
}

#[test]
fn a_file_that_is_not_a_journal_is_left_alone() {
    for content in
        ["my diary", "my diary\n", "sawmill-journal-9 1 boot-1 default orders:t1\n", "\u{fffd}\n\n"]
    {
        let place = Place::new();
        place.append(content.as_bytes());
        let error = place.open().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{content}");
        assert!(error.to_string().contains("orders.journal"), "{error}");
        assert_eq!(place.text(), content);
    }
}

#[test]
fn a_path_that_cannot_be_a_journal_says_why() {
    let place = Place::new();
    std::fs::create_dir(place.path()).unwrap();
    assert_eq!(place.open().err().unwrap().kind(), ErrorKind::Invalid);
    let away = place.0.path().join("away").join("j");
    let error = Journal::open(&away, &"default".parse().unwrap(), &[], BOOT).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("folder"), "{error}");
}

#[test]
fn another_group_must_not_forget_what_a_crashed_one_knows() {
    let place = Place::new();
    crashed(&place, "a", [1]);
    let error = place.open_as("other", BOOT).err().unwrap();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("another group"), "{error}");
    assert_eq!(place.previous(), previous(&["a"], [1]));
    // After a clean end the journal has nothing to keep.
    let journal = place.open().unwrap();
    journal.join(&worker("b")).unwrap();
    journal.recovered();
    journal.finish();
    drop(journal);
    assert_eq!(place.open_as("other", BOOT).unwrap().previous(), None);
}

#[test]
fn it_ends_empty_only_if_everything_was_recovered() {
    let place = Place::new();
    crashed(&place, "a", [1]);
    let journal = place.open().unwrap();
    journal.join(&worker("b")).unwrap();
    journal.finish();
    drop(journal);
    assert_eq!(place.previous(), previous(&["a", "b"], [1]));
}

#[test]
fn one_that_was_declared_dead_while_it_lived_is_not_recovered() {
    let place = Place::new();
    let journal = place.open().unwrap();
    journal.join(&worker("a")).unwrap();
    start(&journal, [1]).unwrap();
    journal.join(&worker("b")).unwrap();
    drop(journal);
    assert_eq!(place.previous().unwrap().workers, [worker("b")].into());
}

#[test]
fn a_line_that_cannot_be_written_is_the_last() {
    let place = Place::new();
    let journal = place.open().unwrap();
    journal.join(&worker("a")).unwrap();
    journal.spoil();
    assert!(start(&journal, [1]).is_err());
    assert!(start(&journal, [2]).is_err());
    drop(journal);
    assert_eq!(place.previous(), previous(&["a"], []));
}

/// Makes the journal switch files at the first chance.
fn switch_early(journal: &Journal) {
    journal.lock().as_mut().unwrap().most = 1;
}

#[test]
fn it_goes_on_in_the_other_file_when_nobody_needs_what_is_there() {
    let place = Place::new();
    let journal = place.open().unwrap();
    switch_early(&journal);
    journal.join(&worker("a")).unwrap();
    start(&journal, [1]).unwrap();
    journal.tidy(Some(1), 1);
    start(&journal, [2]).unwrap();
    // Claim 1, and with it the first file, is still needed.
    journal.tidy(Some(1), 2);
    start(&journal, [3]).unwrap();
    drop(journal);
    assert_eq!(place.previous(), previous(&["a"], [1, 2, 3]));

    let journal = place.open().unwrap();
    switch_early(&journal);
    journal.join(&worker("b")).unwrap();
    journal.tidy(None, 0);
    drop(journal);
    assert_eq!(
        place.previous(),
        previous(&["a", "b"], [1, 2, 3]),
        "nothing is dropped before it is recovered"
    );

    let journal = place.open().unwrap();
    switch_early(&journal);
    journal.join(&worker("c")).unwrap();
    journal.recovered();
    start(&journal, [4]).unwrap();
    journal.tidy(Some(1), 3);
    start(&journal, [5]).unwrap();
    // Every claim that was open at the switch is closed.
    journal.tidy(Some(4), 6);
    start(&journal, [6]).unwrap();
    drop(journal);
    assert_eq!(place.previous(), previous(&["c"], [5, 6]));
}

#[test]
fn a_journal_does_not_grow_for_ever() {
    let place = Place::new();
    let journal = place.open().unwrap();
    journal.join(&worker("a")).unwrap();
    for ticket in 1..=200 {
        start(&journal, (0..1000).map(|nth| ticket as u128 * 1000 + nth)).unwrap();
        journal.tidy(Some(ticket), ticket);
    }
    let length = |index| std::fs::metadata(journal.path_of(index)).unwrap().len();
    assert!(length(0) + length(1) < 2 * LONG + 100_000, "{} and {}", length(0), length(1));
}

#[test]
#[cfg(target_os = "linux")]
fn the_machine_says_which_start_this_is() {
    assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    assert!(boot_id().unwrap().len() > 8);
}
