//! The parent's side: starts children, kills or suspends them, and waits for the expected results.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::RwLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sawmill::admin::{DeadLetter, GroupStatus};
use sawmill::engine::runtime::Env;
use sawmill::{Push, Sawmill, TopicSpec};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::child::STOP;
use super::job::{GROUP, Job, TOPIC, VARIABLE, write_store_address};
use super::record::{self, Record};
use crate::behaviours::{Place, Subject};
use crate::history::{Event, History, Recorded};
use crate::waits::{left, timeout_message};

/// Tests that measure run alone; the others may run in parallel.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs a test in parallel with others.
pub fn play(test: impl Future<Output = ()>) {
    let _shared = MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    block_on(test);
}

/// Runs a test alone.
pub fn play_alone(test: impl Future<Output = ()>) {
    let _alone = MACHINE.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    block_on(test);
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// A store, a folder with records, and the children that work on it. Dropping it removes all of them.
pub struct ChildProcesses {
    children: Vec<ChildProcess>,
    folder: TempDir,
    place: Place,
    /// An opening of the store to list the members.
    watcher: OnceCell<Sawmill>,
    pub record: Record,
}

/// A child process.
struct ChildProcess {
    name: String,
    process: Child,
}

impl ChildProcess {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // A child that was waited for has no id any more; `kill` handles that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ChildProcesses {
    pub fn new(on: Subject) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::open(folder.path(), "test");
        let place = on.place();
        write_store_address(folder.path(), &place);
        Self { children: Vec::new(), folder, place, watcher: OnceCell::new(), record }
    }

    /// Returns the URL of the store.
    pub fn url(&self) -> String {
        self.place.url()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens the store for the test itself.
    pub async fn open(&self) -> Sawmill {
        self.place.mill().await
    }

    /// Opens the store, and creates the topic that all work on.
    pub async fn open_with_topic(&self, shards: u16) -> Sawmill {
        let mill = self.open().await;
        let spec = TopicSpec { shards, ..TopicSpec::new(TOPIC.parse().unwrap()) };
        mill.create_topic_with(&spec).await.unwrap();
        mill
    }

    /// Pushes `count` messages, `each` at a time, with the keys in turn; without keys if `keys` is 0.
    pub async fn push(&self, mill: &Sawmill, count: usize, each: usize, keys: usize) {
        let key = |nth: usize| (keys > 0).then(|| format!("key{}", nth % keys));
        for first in (0..count).step_by(each) {
            let numbers = first..(first + each).min(count);
            let push = |nth: usize| {
                let push = Push::new(format!("message {nth}"));
                key(nth).into_iter().fold(push, Push::key)
            };
            let ids = mill.push_many(TOPIC, numbers.clone().map(push)).await.unwrap();
            for (nth, id) in numbers.zip(ids) {
                self.record.pushed(id, key(nth));
            }
        }
    }

    /// Starts a child.
    pub fn start(&mut self, job: &Job) {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &self.place.subject.child_test(), "--nocapture", "--test-threads=1"])
            .env(VARIABLE, serde_json::to_string(job).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push(ChildProcess { name: job.name.clone(), process });
    }

    fn child(&mut self, name: &str) -> &mut ChildProcess {
        self.children.iter_mut().find(|child| child.name == name).unwrap()
    }

    /// Kills a child without warning; returns when.
    pub fn kill(&mut self, name: &str) -> u64 {
        let at = self.record.note(Event::WorkerKilled { worker: name.to_owned() });
        let child = self.child(name);
        child.signal(Signal::KILL);
        child.process.wait().unwrap();
        self.children.retain(|child| child.name != name);
        at
    }

    /// Suspends a child, but not within a transaction: a suspended writer would block all others, which is
    /// not what is tested. Returns when.
    pub async fn freeze(&mut self, name: &str) -> u64 {
        for _ in 0..20 {
            let at = self.record.note(Event::WorkerFrozen { worker: name.to_owned() });
            let child = self.child(name);
            child.signal(Signal::STOP);
            let pid = WaitId::Pid(Pid::from_child(&child.process));
            waitid(pid, WaitIdOptions::STOPPED).unwrap();
            if self.place.store.can_write().await {
                return at;
            }
            self.child(name).signal(Signal::CONT);
            Env::system().sleep(Duration::from_millis(7)).await;
        }
        panic!("test timed out: {name} stands still outside of a transaction");
    }

    /// Waits until the others have declared this child dead, and at least this long.
    pub async fn declared_dead(&self, name: &str, at_least: Duration) {
        Env::system().sleep(at_least).await;
        let declared = async {
            while self.is_member(name).await {
                Env::system().sleep(Duration::from_millis(10)).await;
            }
        };
        soon(&format!("that {name} is declared dead"), declared).await;
    }

    /// Resumes a suspended child; returns when.
    pub fn thaw(&mut self, name: &str) -> u64 {
        let at = record::now();
        self.child(name).signal(Signal::CONT);
        at
    }

    /// Tells all children to stop, and waits until they have.
    pub async fn stop(&mut self) {
        for child in &mut self.children {
            let input = child.process.stdin.as_mut().unwrap();
            writeln!(input, "{STOP}").unwrap();
        }
        self.ended().await;
    }

    /// Waits until all children have ended successfully.
    pub async fn ended(&mut self) {
        for mut child in std::mem::take(&mut self.children) {
            let ended = async {
                loop {
                    match child.process.try_wait().unwrap() {
                        Some(status) => return status,
                        None => Env::system().sleep(Duration::from_millis(5)).await,
                    }
                }
            };
            let status = soon(&format!("the end of {}", child.name), ended).await;
            assert!(status.success(), "{}: {status}", child.name);
        }
    }

    /// Returns the counts of children that were stopped.
    pub fn counts(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().join(format!("{name}.counts"))).unwrap()
    }

    pub fn history(&self) -> History {
        record::read_all(self.folder())
    }

    /// Waits until the records satisfy the condition.
    pub async fn until(&self, what: &str, happened: impl Fn(&History) -> bool) {
        let seen = async {
            while !happened(&self.history()) {
                Env::system().sleep(Duration::from_millis(10)).await;
            }
        };
        if Env::system().within(MAX_WAIT, seen).await.is_none() {
            let mill = self.watcher.get_or_init(|| self.open()).await;
            let said = timeout_message(what, mill, TOPIC, GROUP, async || self.missing(mill).await).await;
            panic!("{said}; finished: {:?}", finished_by(&self.history()));
        }
    }

    /// Waits until nothing is left to do, and returns the group's status.
    pub async fn drained(&self, mill: &Sawmill) -> GroupStatus {
        let drained = async {
            loop {
                let status = mill.admin().status(TOPIC, GROUP).await.unwrap();
                if left(&status) == 0 {
                    return status;
                }
                Env::system().sleep(Duration::from_millis(20)).await;
            }
        };
        match Env::system().within(MAX_WAIT, drained).await {
            Some(status) => status,
            None => {
                let (what, missing) = ("everything is done", async || self.missing(mill).await);
                panic!("{}", timeout_message(what, mill, TOPIC, GROUP, missing).await)
            }
        }
    }

    /// Returns how many pushed messages were neither finished nor given up.
    async fn missing(&self, mill: &Sawmill) -> usize {
        let letters = mill.admin().dead_letters(TOPIC, GROUP).await.unwrap().list(usize::MAX).await.unwrap();
        let dead = |letter: &DeadLetter| Recorded { at: u64::MAX, event: Event::Dead { id: letter.id() } };
        let events =
            self.history().events().iter().cloned().chain(letters.iter().map(dead)).collect::<Vec<_>>();
        History::new(events).check_nothing_lost().len()
    }

    /// Waits until these children are members of the group.
    pub async fn joined(&self, names: &[&str]) {
        for name in names {
            let joined = async {
                while !self.is_member(name).await {
                    Env::system().sleep(Duration::from_millis(10)).await;
                }
            };
            soon(&format!("that {name} joins"), joined).await;
        }
    }

    /// Returns the names of the members of the group.
    pub async fn members(&self) -> Vec<String> {
        let mill = self.watcher.get_or_init(|| self.open()).await;
        mill.admin().workers(GROUP).await.unwrap().iter().map(|member| member.id.to_string()).collect()
    }

    /// Returns true if a worker of this child is a member of the group.
    pub async fn is_member(&self, name: &str) -> bool {
        self.members().await.iter().any(|member| member.rsplit_once('-').is_some_and(|(own, _)| own == name))
    }
}

/// Returns how many messages each worker has finished.
pub fn finished_by(history: &History) -> BTreeMap<String, usize> {
    let mut finished = BTreeMap::new();
    for recorded in history.events() {
        if let Event::Finished { worker, .. } = &recorded.event {
            *finished.entry(worker.clone()).or_default() += 1;
        }
    }
    finished
}

/// How long to wait for an expected event.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits for an expected event.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = Env::system().within(MAX_WAIT, future).await;
    done.unwrap_or_else(|| panic!("test timed out: {what}"))
}
