//! `sawmill push`: pushes one message, or one per line of stdin.

mod input;
mod jsonl;

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use sawmill::{ErrorKind, MessageId, Push, Sawmill, Timestamp};
use serde::Serialize;

use crate::commands::topic;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::live::LiveLine;
use crate::terminal::output::note;
use crate::terminal::text;
use input::{Batch, Lines};

/// The largest number of lines in one push.
const BATCH: usize = 1_000;

#[derive(Debug, Args)]
#[command(after_help = "\
A printed id means that its message is durable. If pushing fails on some line, the messages before
it stay, and the error names the first line that was not pushed. With --lines, the payload is the
line without its line end.

With --jsonl, each line is an object with these fields, all optional except the payload:
  payload         a string is pushed as text; any other value as JSON
  payload_base64  replaces payload for bytes that are not text
  key, unique     strings
  at, in          a time or a duration
  headers         an object of strings

Examples:
  sawmill push emails 'Dear Alice'
  sawmill push emails --key alice --in 10m --header lang=en < letter.txt
  sawmill push reports --unique report-7 customer-7
  sawmill push clicks --lines --quiet < clicks.txt
  echo '{\"payload\":{\"to\":\"alice\"},\"key\":\"alice\"}' | sawmill push emails --jsonl")]
pub(crate) struct PushArgs {
    /// The topic. It is created with default settings if it does not exist
    topic: String,
    /// The payload. Without it, or with `-`, stdin is the payload
    payload: Option<String>,
    /// The key. Messages with the same key share a shard, and ordered groups handle them in order
    #[arg(long)]
    key: Option<String>,
    /// Delay the message by this time, such as 30s, 10m or 1h30m
    #[arg(long = "in", value_name = "DURATION", value_parser = text::duration, conflicts_with = "at")]
    after: Option<Duration>,
    /// Delay the message until this time, such as 2026-11-15T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = text::time)]
    at: Option<Timestamp>,
    /// A header. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Push nothing if a live message has this unique name, and print the id of that message
    #[arg(long, value_name = "NAME")]
    unique: Option<String>,
    /// Push each line of stdin as a message
    #[arg(long, conflicts_with_all = ["payload", "unique"])]
    lines: bool,
    /// Push each line of stdin as a message in JSON
    #[arg(long, conflicts_with_all = ["payload", "unique", "lines", "key", "after", "at", "header"])]
    jsonl: bool,
    /// Print only the number of messages
    #[arg(long, short)]
    quiet: bool,
    /// Fail if the topic does not exist
    #[arg(long)]
    no_create: bool,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A pushed message, as it is printed.
#[derive(Serialize)]
struct Pushed {
    id: String,
}

/// The number of pushed messages, as it is printed.
#[derive(Serialize)]
struct Count {
    pushed: u64,
}

pub(crate) async fn run(args: PushArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let many = args.lines || args.jsonl;
    if many && input::is_nothing() {
        note("Nothing is pushed: stdin is closed, or the null device.");
    }
    // Read the payload before creating the topic: a failed read must not leave one.
    let one =
        (!many).then(|| payload(args.payload.as_deref())).transpose()?.map(|payload| args.message(payload));
    topic::ensure(&mill, &args.topic, !args.no_create).await?;
    let pushed = match one {
        Some(message) => {
            let id = mill.push(&args.topic, message).await?;
            print(session, &args, &[id]).map_err(|failure| unread(failure, 1))?;
            1
        }
        None => push_lines(&mill, &args, session).await?,
    };
    if args.quiet {
        session.out.object(&Count { pushed }, |count| count.pushed.to_string())?;
    }
    Ok(())
}

impl PushArgs {
    /// Builds the message with this payload and the options.
    fn message(&self, payload: Bytes) -> Push {
        let mut push = Push::new(payload);
        if let Some(key) = &self.key {
            push = push.key(key.clone());
        }
        if let Some(after) = self.after {
            push = push.after(after);
        }
        if let Some(at) = self.at {
            push = push.at(at);
        }
        if let Some(unique) = &self.unique {
            push = push.unique(unique);
        }
        self.header.iter().fold(push, |push, (name, value)| push.header(name, value.clone()))
    }

    /// Builds the message of a line of stdin.
    fn message_of(&self, line: &Bytes) -> Result<Push, Failure> {
        match self.jsonl {
            true => jsonl::message(line).map_err(Failure::failed),
            false => Ok(self.message(line.clone())),
        }
    }
}

/// Returns the single payload: the argument, or all of stdin.
fn payload(argument: Option<&str>) -> Result<Bytes, Failure> {
    if let Some(text) = argument.filter(|text| *text != "-") {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    if input::is_nothing() {
        return Err(Failure::usage(
            "there is no payload: stdin is closed, or the null device; give it as an argument ('' for an empty one), or redirect stdin to it",
        ));
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        note("Reading the payload from the terminal: end it with ctrl-D on a line of its own.");
    }
    let mut payload = Vec::new();
    // Read one byte more than can be pushed, so that a payload that is too large fails instead of being cut.
    let most = input::LONGEST as u64 + 1;
    stdin.lock().take(most).read_to_end(&mut payload).map_err(|error| input::unreadable(&error))?;
    Ok(payload.into())
}

async fn push_lines(mill: &Sawmill, args: &PushArgs, session: &Session) -> Result<u64, Failure> {
    let mut lines = Lines::of_stdin(BATCH)?;
    let mut pushed = 0;
    let began = session.env.now();
    // If ids are printed to a terminal, they show the progress.
    let ids_are_seen = !args.quiet && std::io::stdout().is_terminal();
    let progress = (!ids_are_seen).then(|| LiveLine::new(&session.env));
    while let Some(batch) = lines.next().await {
        let Batch { first, lines, error } = batch;
        // Lines before a wrong one are still pushed.
        let (messages, wrong) = messages(args, &lines);
        pushed += push_batch(mill, args, session, first, messages).await?;
        if let Some(progress) = &progress {
            let per_second = pushed as f64 / session.env.now().since(began).as_secs_f64().max(0.001);
            let (pushed, rate) = (text::counted(pushed, "message"), text::count(per_second as u64));
            progress.set(&format!("{}  {pushed} pushed  {rate}/s", args.topic));
        }
        if let Some(failure) = wrong.or(error) {
            return Err(failure.at(format!("line {}", pushed + 1)).and(&so_far(pushed)));
        }
    }
    Ok(pushed)
}

/// Builds the messages of the lines up to the first wrong line.
fn messages(args: &PushArgs, lines: &[Bytes]) -> (Vec<Push>, Option<Failure>) {
    let mut messages = Vec::with_capacity(lines.len());
    for line in lines {
        match args.message_of(line) {
            Ok(message) => messages.push(message),
            Err(failure) => return (messages, Some(failure)),
        }
    }
    (messages, None)
}

/// Pushes the messages of the lines from `first` on, and prints their ids. If the batch is refused because of
/// one of them, the messages before that one are still pushed.
async fn push_batch(
    mill: &Sawmill,
    args: &PushArgs,
    session: &Session,
    first: u64,
    messages: Vec<Push>,
) -> Result<u64, Failure> {
    let count = messages.len() as u64;
    let last = first + count - u64::from(count > 0);
    let failed = |error: sawmill::Error, line: u64| {
        let doubt = match error.kind() {
            ErrorKind::Unknown => format!("; lines {line} to {last} may be stored or not"),
            _ => String::new(),
        };
        Failure::from(error).at(format!("line {line}")).and(&(so_far(line - 1) + &doubt))
    };
    match mill.push_many(&args.topic, messages.clone()).await {
        Ok(ids) => print(session, args, &ids).map_err(|failure| unread(failure, last))?,
        Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::TooLarge) => {
            for (line, message) in (first..).zip(messages) {
                let id = mill.push(&args.topic, message).await.map_err(|error| failed(error, line))?;
                print(session, args, &[id]).map_err(|failure| unread(failure, line))?;
            }
        }
        Err(error) => return Err(failed(error, first)),
    }
    Ok(count)
}

fn so_far(lines: u64) -> String {
    match lines {
        0 => "; nothing was pushed".to_owned(),
        1 => "; line 1 is pushed".to_owned(),
        _ => format!("; lines 1 to {lines} are pushed"),
    }
}

/// Prints the ids of durable messages.
fn print(session: &Session, args: &PushArgs, ids: &[MessageId]) -> Result<(), std::io::Error> {
    if args.quiet {
        return Ok(());
    }
    let mut text = String::with_capacity(ids.len() * 28);
    for id in ids {
        match session.out.is_json() {
            true => text.push_str(&crate::terminal::output::json(&Pushed { id: id.to_string() })),
            false => text.push_str(&id.to_string()),
        }
        text.push('\n');
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The failure if the ids cannot be printed. A closed stdout is an error here, unlike elsewhere: the reader
/// assumes that the other lines were not pushed, which is wrong for these.
fn unread(error: std::io::Error, last: u64) -> Failure {
    Failure::failed(format!("the ids could not be printed: {error}{}", so_far(last)))
}
