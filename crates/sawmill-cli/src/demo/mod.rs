//! `sawmill demo`: the promise, before your eyes. Several worker processes, one of which is killed, and a count at the end.

mod letter;
mod picture;
mod story;

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sawmill::{GroupStatus, Sawmill};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::failure::Failure;
use crate::output::note;
use crate::session::Session;
use crate::{engines, text};
pub(crate) use letter::{DeliverArgs, deliver};
use picture::Picture;
use story::{Proof, Story};

/// Where those who deliver letters tell of it.
const STORY: &str = "story.txt";
const TOPIC: &str = "letters";
const WORKERS: usize = 3;
/// The one that is killed.
const VICTIM: usize = 1;
/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(80);
/// How long it may take on a slow machine before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sawmill demo\n  sawmill demo --keep ./demo   # look around afterwards: cd demo; sawmill status"
)]
pub(crate) struct DemoArgs {
    /// Use this folder, which must not exist yet, and keep it; else a temporary one is used and removed
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

pub(crate) async fn run(args: DemoArgs, session: &Session) -> Result<(), Failure> {
    let folder = Folder::make(args.keep)?;
    let demo = Demo::prepare(&folder.path, session).await?;
    let proof = tokio::select! {
        proof = demo.play(session) => proof?,
        // The workers die, and the folder goes.
        () = interrupted() => return Err(Failure::failed("interrupted")),
    };
    session.out.object(&proof, told)?;
    if proof.holds() {
        return Ok(());
    }
    Err(Failure::failed(format!("the promise was broken; see {}", folder.keep().display())))
}

/// The folder with the store and the story in it.
struct Folder {
    path: PathBuf,
    /// Removed at the end.
    temporary: Option<TempDir>,
}

impl Folder {
    fn make(keep: Option<PathBuf>) -> Result<Self, Failure> {
        let wrong =
            |error| Failure::failed(format!("the folder of the demonstration cannot be made: {error}"));
        let (path, temporary) = match keep {
            Some(path) => {
                std::fs::create_dir(&path).map_err(wrong)?;
                (path.canonicalize().map_err(wrong)?, None)
            }
            None => {
                let folder = tempfile::Builder::new().prefix("sawmill-demo-").tempdir().map_err(wrong)?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        std::fs::create_dir(path.join("delivered")).map_err(wrong)?;
        Ok(Self { path, temporary })
    }

    fn keep(self) -> PathBuf {
        self.temporary.map_or(self.path, TempDir::keep)
    }
}

struct Demo {
    mill: Sawmill,
    url: String,
    folder: PathBuf,
    story: Story,
}

impl Demo {
    /// Makes a store and pushes letters to it.
    async fn prepare(folder: &Path, session: &Session) -> Result<Self, Failure> {
        let url = format!("sqlite:{}", folder.join("sawmill.db").display());
        engines::check(&url)?;
        let mill = engines::options().env(session.env.clone()).open(&url).await?;
        mill.create_topic(TOPIC).await?;
        let letters = letter::all();
        let now = session.now();
        let pushes: Result<Vec<_>, Failure> = letters.iter().map(|letter| letter.push(now)).collect();
        let ids = mill.push_many(TOPIC, pushes?).await?;
        let story = Story::new(ids.iter().map(ToString::to_string).zip(letters));
        note(&format!(
            "Pushed {} to a fresh SQLite file: to 12 people, each in order; some fail at first, some never arrive, some are due later.",
            text::counted(story.threads.len() as u64, "letter")
        ));
        note(&format!("Starting {WORKERS} worker processes. One of them will be killed."));
        Ok(Self { mill, url, folder: folder.to_owned(), story })
    }

    /// Has the letters delivered, and says what that proves.
    async fn play(mut self, session: &Session) -> Result<Proof, Failure> {
        let mut workers = (0..WORKERS).map(|worker| self.start(worker)).collect::<Result<Vec<_>, _>>()?;
        let began = session.env.now();
        let mut picture = Picture::new();
        let (mut tail, mut killed) = (Tail::default(), None);
        let kill_at = self.story.threads.len() / 3;
        while !(self.story.is_over() && self.is_settled().await?) {
            session.env.sleep(FRAME).await;
            tail.read(&self.folder.join(STORY), |line| self.story.hear(line))?;
            let proof = self.story.proof();
            if killed.is_none() && proof.delivered >= kill_at {
                workers[VICTIM].kill().await?;
                killed = Some(VICTIM);
                let held = self.story.held_by(VICTIM) as u64;
                let said = format!(
                    "Killed worker {} with {} in its hands.",
                    VICTIM + 1,
                    text::counted(held, "letter")
                );
                if !picture.is_seen() {
                    note(&said);
                }
            }
            let took = session.env.now().since(began);
            picture.draw(&self.story, killed, &caption(&proof, took, killed));
            if took > PATIENCE {
                return Err(Failure::failed(format!("it is not over after {}: {proof:?}", text::span(took))));
            }
        }
        for (nth, worker) in workers.iter_mut().enumerate() {
            if Some(nth) != killed {
                interrupt(worker);
                worker.wait().await?;
            }
        }
        Ok(self.story.proof())
    }

    fn start(&self, worker: usize) -> Result<Child, Failure> {
        let program =
            std::env::current_exe().map_err(|error| Failure::failed(format!("where am I? {error}")))?;
        let name = format!("worker-{}", worker + 1);
        let log = std::fs::File::create(self.folder.join(format!("{name}.log")))?;
        Command::new(&program)
            .args(["--store", &self.url, "work", TOPIC, "--name", &name, "--ordered", "--concurrency", "4"])
            .args(["--ttl", "2s", "--retries", "5", "--backoff", "300ms..2s", "--quiet", "--"])
            .arg(&program)
            .arg("demo-deliver")
            .arg(&self.folder)
            .arg(worker.to_string())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::failed(format!("a worker could not be started: {error}")))
    }

    /// True if the store too says that nothing is left to do.
    async fn is_settled(&self) -> Result<bool, Failure> {
        let GroupStatus { waiting, scheduled, claimed, retrying, .. } =
            self.mill.status(TOPIC, "default").await?;
        Ok(waiting + scheduled + claimed + retrying == 0)
    }
}

/// Waits until somebody wants this to end. If signals cannot be heard, they end the process itself.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Asks a worker to finish and leave.
fn interrupt(worker: &Child) {
    let pid = worker.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have gone already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
}

/// Reads on in a file that grows, line by line.
#[derive(Default)]
struct Tail {
    read: u64,
    rest: String,
}

impl Tail {
    fn read(&mut self, path: &Path, mut hear: impl FnMut(&str)) -> Result<(), Failure> {
        let Ok(mut file) = std::fs::File::open(path) else { return Ok(()) };
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_string(&mut self.rest)? as u64;
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        self.rest.drain(..whole).collect::<String>().lines().for_each(&mut hear);
        Ok(())
    }
}

fn caption(proof: &Proof, took: Duration, killed: Option<usize>) -> String {
    let death = match killed {
        Some(_) if proof.lost > 0 => "; what worker 2 had goes to the others when it was silent for 2 s",
        _ => "",
    };
    format!("{:4.1} s: {} of {} delivered{death}", took.as_secs_f64(), proof.delivered, proof.pushed)
}

fn told(proof: &Proof) -> String {
    let line = |name: &str, count: usize, said: &str| {
        format!("  {name:<13}{count:>5}  {said}").trim_end().to_owned() + "\n"
    };
    let verdict =
        if proof.holds() { "Nothing was lost, nothing was done twice." } else { "The promise was broken." };
    [
        "\n".to_owned(),
        line("pushed", proof.pushed, ""),
        line("done", proof.delivered, ""),
        line("retried", proof.retried, "failed at first, then done"),
        line(
            "repeated",
            proof.interrupted,
            "the killed worker had not said that they were done, so they ran again",
        ),
        line("dead", proof.dead, "cannot be delivered: kept, with the reason, for a person to decide"),
        line("lost", proof.lost, ""),
        line(
            "doubled",
            proof.doubled,
            "each delivery is marked with the message's id, so a second run finds it done",
        ),
        line("out of order", proof.out_of_order, "letters to one person arrive as they were pushed"),
        format!("\n{verdict}"),
    ]
    .concat()
}
