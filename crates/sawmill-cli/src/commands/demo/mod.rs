//! `sawmill demo`: shows the guarantees. Several worker processes deliver letters, one is killed, and the
//! counts are checked at the end.

mod letter;
mod picture;
mod progress;

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sawmill::Sawmill;
use sawmill::admin::GroupStatus;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::engines;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::text;
pub(crate) use letter::{DeliverArgs, deliver};
use picture::Picture;
use progress::{Progress, Proof};

/// The event log, to which the delivery processes append.
const EVENT_LOG: &str = "story.txt";
const TOPIC: &str = "letters";
const WORKERS: usize = 3;
/// The worker that is killed.
const KILLED_WORKER: usize = 1;
/// The interval between two drawings.
const FRAME: Duration = Duration::from_millis(80);
/// The time limit, generous for slow machines.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sawmill demo\n  sawmill demo --keep ./demo   # look around afterwards: cd demo; sawmill status"
)]
pub(crate) struct DemoArgs {
    /// The folder to use, which must not exist, and to keep [default: a temporary one, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

pub(crate) async fn run(args: DemoArgs, session: &Session) -> Result<(), Failure> {
    let folder = Folder::make(args.keep)?;
    let demo = Demo::prepare(&folder.path, session).await?;
    let proof = tokio::select! {
        proof = demo.play(session) => proof?,
        // Dropping the rest kills the workers and removes the folder.
        () = interrupted() => return Err(Failure::failed("interrupted")),
    };
    session.out.object(&proof, summary)?;
    if proof.holds() {
        return Ok(());
    }
    Err(Failure::failed(format!("the promise was broken; see {}", folder.keep().display())))
}

/// The folder with the store and the event log.
struct Folder {
    path: PathBuf,
    /// Set if the folder is removed at the end.
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
    progress: Progress,
}

impl Demo {
    /// Creates a store and pushes the letters.
    async fn prepare(folder: &Path, session: &Session) -> Result<Self, Failure> {
        let url = format!("sqlite:{}", folder.join("sawmill.db").display());
        engines::check(&url)?;
        let mill = engines::options().env(session.env.clone()).open(&url).await?;
        mill.create_topic(TOPIC).await?;
        let letters = letter::all();
        let now = session.now();
        let pushes: Result<Vec<_>, Failure> = letters.iter().map(|letter| letter.push(now)).collect();
        let ids = mill.push_many(TOPIC, pushes?).await?;
        let progress = Progress::new(ids.iter().map(ToString::to_string).zip(letters));
        note(&format!(
            "Pushed {} to a fresh SQLite file: to 12 people, each in order; some fail at first, some never arrive, some are due later.",
            text::counted(progress.letters.len() as u64, "letter")
        ));
        note(&format!("Starting {WORKERS} worker processes. One of them will be killed."));
        Ok(Self { mill, url, folder: folder.to_owned(), progress })
    }

    /// Has the letters delivered, and returns the counts.
    async fn play(mut self, session: &Session) -> Result<Proof, Failure> {
        let mut workers = (0..WORKERS).map(|worker| self.start(worker)).collect::<Result<Vec<_>, _>>()?;
        let began = session.env.now();
        let mut picture = Picture::new();
        let (mut tail, mut killed) = (Tail::default(), None);
        let kill_at = self.progress.letters.len() / 3;
        while !(self.progress.is_over() && self.is_settled().await?) {
            session.env.sleep(FRAME).await;
            tail.read(&self.folder.join(EVENT_LOG), |line| self.progress.apply(line))?;
            let proof = self.progress.proof();
            if killed.is_none() && proof.delivered >= kill_at {
                workers[KILLED_WORKER].kill().await?;
                killed = Some(KILLED_WORKER);
                let held = self.progress.held_by(KILLED_WORKER) as u64;
                let said = format!(
                    "Killed worker {} with {} in its hands.",
                    KILLED_WORKER + 1,
                    text::counted(held, "letter")
                );
                if !picture.is_seen() {
                    note(&said);
                }
            }
            let took = session.env.now().since(began);
            picture.draw(&self.progress, killed, &caption(&proof, took, killed));
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
        Ok(self.progress.proof())
    }

    fn start(&self, worker: usize) -> Result<Child, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("the path of this program is unknown: {error}")))?;
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

    /// True if the store, too, says that nothing is left to do.
    async fn is_settled(&self) -> Result<bool, Failure> {
        let GroupStatus { waiting, scheduled, claimed, retrying, .. } =
            self.mill.admin().status(TOPIC, "default").await?;
        Ok(waiting + scheduled + claimed + retrying == 0)
    }
}

/// Waits for an interrupt. If it cannot be caught, it ends the process itself.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Asks a worker to finish and exit.
fn interrupt(worker: &Child) {
    let pid = worker.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have exited already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
}

/// Reads a growing file line by line.
#[derive(Default)]
struct Tail {
    read: u64,
    rest: String,
}

impl Tail {
    fn read(&mut self, path: &Path, mut apply: impl FnMut(&str)) -> Result<(), Failure> {
        let Ok(mut file) = std::fs::File::open(path) else { return Ok(()) };
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_string(&mut self.rest)? as u64;
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        self.rest.drain(..whole).collect::<String>().lines().for_each(&mut apply);
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

fn summary(proof: &Proof) -> String {
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
