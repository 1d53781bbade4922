//! The test's side: starts children, does to them what the test is about, and waits for what must come of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::RwLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sawmill::env::Env;
use sawmill::topic::TopicSpec;
use sawmill::{DeadLetter, GroupStatus, Push, Sawmill};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::child::STOP;
use super::job::{GROUP, Job, TOPIC, VARIABLE, appoint};
use super::record::{self, Record};
use crate::behaviours::{Place, Subject};
use crate::history::{Event, History, Recorded};
use crate::waits::{left, timeout_message};

/// Tests that measure run alone; the others may run beside each other.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs a test beside others.
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

/// A store and a folder with records, and the children at work on it. All of them are gone when it is dropped.
pub struct Crew {
    children: Vec<Hand>,
    folder: TempDir,
    place: Place,
    /// Looks who is there.
    watcher: OnceCell<Sawmill>,
    pub record: Record,
}

/// A child process.
struct Hand {
    name: String,
    process: Child,
}

impl Hand {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // A child that has ended and was waited for has no id any more; `kill` knows that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Crew {
    pub fn new(on: Subject) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::open(folder.path(), "test");
        let place = on.place();
        appoint(folder.path(), &place);
        Self { children: Vec::new(), folder, place, watcher: OnceCell::new(), record }
    }

    /// The URL of the store.
    pub fn url(&self) -> String {
        self.place.url()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The store, opened by the test itself.
    pub async fn open(&self) -> Sawmill {
        self.place.mill().await
    }

    /// The store with the topic that all work on.
    pub async fn open_with_topic(&self, shards: u16) -> Sawmill {
        let mill = self.open().await;
        let spec = TopicSpec { shards, ..TopicSpec::new(TOPIC.parse().unwrap()) };
        mill.create_topic_with(&spec).await.unwrap();
        mill
    }

    /// Pushes so many messages, `each` at a time, the keys in turn; none have keys if there are none.
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
        self.children.push(Hand { name: job.name.clone(), process });
    }

    fn child(&mut self, name: &str) -> &mut Hand {
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

    /// Makes a child stand still, and not in the middle of a transaction: nobody could write to a file as long as its
    /// writer stands still, and it is not that which is tested. Returns when.
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

    /// Waits until the others have declared this child dead, and at least so long.
    pub async fn declared_dead(&self, name: &str, at_least: Duration) {
        Env::system().sleep(at_least).await;
        let declared = async {
            while self.is_member(name).await {
                Env::system().sleep(Duration::from_millis(10)).await;
            }
        };
        soon(&format!("that {name} is declared dead"), declared).await;
    }

    /// Lets a child that stands still go on; returns when.
    pub fn thaw(&mut self, name: &str) -> u64 {
        let at = record::now();
        self.child(name).signal(Signal::CONT);
        at
    }

    /// Tells all children to stop and waits until they have.
    pub async fn stop(&mut self) {
        for child in &mut self.children {
            let input = child.process.stdin.as_mut().unwrap();
            writeln!(input, "{STOP}").unwrap();
        }
        self.ended().await;
    }

    /// Waits until all children have ended, and none in trouble.
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

    /// What children that were stopped have counted.
    pub fn counts(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().join(format!("{name}.counts"))).unwrap()
    }

    pub fn history(&self) -> History {
        record::read_all(self.folder())
    }

    /// Waits until the records say so.
    pub async fn until(&self, what: &str, happened: impl Fn(&History) -> bool) {
        let seen = async {
            while !happened(&self.history()) {
                Env::system().sleep(Duration::from_millis(10)).await;
            }
        };
        if Env::system().within(PATIENCE, seen).await.is_none() {
            let mill = self.watcher.get_or_init(|| self.open()).await;
            let said = timeout_message(what, mill, TOPIC, GROUP, async || self.missing(mill).await).await;
            panic!("{said}; finished: {:?}", finished_by(&self.history()));
        }
    }

    /// Waits until nothing is left to be done, and says where the group stands then.
    pub async fn drained(&self, mill: &Sawmill) -> GroupStatus {
        let drained = async {
            loop {
                let status = mill.status(TOPIC, GROUP).await.unwrap();
                if left(&status) == 0 {
                    return status;
                }
                Env::system().sleep(Duration::from_millis(20)).await;
            }
        };
        match Env::system().within(PATIENCE, drained).await {
            Some(status) => status,
            None => {
                let (what, missing) = ("everything is done", async || self.missing(mill).await);
                panic!("{}", timeout_message(what, mill, TOPIC, GROUP, missing).await)
            }
        }
    }

    /// How many messages were pushed, and were neither finished nor given up.
    async fn missing(&self, mill: &Sawmill) -> usize {
        let letters = mill.dead_letters(TOPIC, GROUP).await.unwrap().list(usize::MAX).await.unwrap();
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

    /// The names of the members of the group.
    pub async fn members(&self) -> Vec<String> {
        let mill = self.watcher.get_or_init(|| self.open()).await;
        mill.members(GROUP).await.unwrap().iter().map(|member| member.id.to_string()).collect()
    }

    /// True if a worker of this child is a member of the group.
    pub async fn is_member(&self, name: &str) -> bool {
        self.members().await.iter().any(|member| member.rsplit_once('-').is_some_and(|(own, _)| own == name))
    }
}

/// How many messages each worker has finished.
pub fn finished_by(history: &History) -> BTreeMap<String, usize> {
    let mut finished = BTreeMap::new();
    for recorded in history.events() {
        if let Event::Finished { worker, .. } = &recorded.event {
            *finished.entry(worker.clone()).or_default() += 1;
        }
    }
    finished
}

/// How long to wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must happen soon.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = Env::system().within(PATIENCE, future).await;
    done.unwrap_or_else(|| panic!("test timed out: {what}"))
}
