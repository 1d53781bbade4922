//! `sawmill dead`: lists, shows, retries and drops dead letters.

use clap::{ArgGroup, Args, Subcommand};
use sawmill::admin::{DeadLetter, DeadLetterSelection, DeadLetters};
use sawmill::{MessageId, Sawmill, Timestamp};
use serde::Serialize;

use crate::failure::Failure;
use crate::group::{self, GroupArg};
use crate::message::{FailureShown, MessageShown};
use crate::session::Session;
use crate::terminal::output::{confirm, note};
use crate::terminal::table::{Table, fields};
use crate::terminal::text;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the dead letters of a group, oldest first
    #[command(after_help = "Examples:
  sawmill dead list emails
  sawmill dead list orders --group totals --limit 1000 --json")]
    List {
        /// The topic
        topic: String,
        #[command(flatten)]
        group: GroupArg,
        /// The largest number of dead letters to list
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Show dead letters with all their failures and what the commands wrote to stderr
    #[command(override_usage = "sawmill dead show [OPTIONS] <TOPIC> <ID>...|--all")]
    #[command(after_help = "Examples:
  sawmill dead show emails 01KA5WZJ2M8Q4T6V8X0Y2A4C6E
  sawmill dead show emails --all --json")]
    Show {
        #[command(flatten)]
        which: WhichArgs,
    },
    /// Retry dead letters in this group only, with their full number of attempts
    #[command(override_usage = "sawmill dead retry [OPTIONS] <TOPIC> <ID>...|--all")]
    #[command(after_help = "Examples:
  sawmill dead retry emails 01KA5WZJ2M8Q4T6V8X0Y2A4C6E
  sawmill dead retry orders --group totals --all")]
    Retry {
        #[command(flatten)]
        which: WhichArgs,
    },
    /// Drop dead letters permanently
    #[command(override_usage = "sawmill dead drop [OPTIONS] <TOPIC> <ID>...|--all")]
    #[command(after_help = "Examples:
  sawmill dead drop emails 01KA5WZJ2M8Q4T6V8X0Y2A4C6E
  sawmill dead drop orders --group totals --all --yes")]
    Drop {
        #[command(flatten)]
        which: WhichArgs,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["ids", "all"]))]
pub(crate) struct WhichArgs {
    /// The topic
    topic: String,
    #[command(flatten)]
    group: GroupArg,
    /// The message ids, as `sawmill push` printed them
    #[arg(value_name = "ID")]
    ids: Vec<MessageId>,
    /// All dead letters of the group
    #[arg(long)]
    all: bool,
}

impl WhichArgs {
    fn which(&self) -> DeadLetterSelection {
        if self.all { DeadLetterSelection::All } else { DeadLetterSelection::Ids(self.ids.clone()) }
    }

    async fn letters(&self, mill: &Sawmill) -> Result<DeadLetters, Failure> {
        open(mill, &self.topic, &self.group.group).await
    }
}

/// A dead letter as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    message: MessageShown,
    group: String,
    reason: String,
    failed_attempts: u32,
    died_at: String,
    failures: Vec<FailureShown>,
    #[serde(skip)]
    died: Timestamp,
}

impl Shown {
    fn new(topic: &str, group: &str, letter: DeadLetter) -> Self {
        let reason = letter.reason().to_owned();
        let failures = letter.message.failures();
        // A dead letter has no time of its own; it is written when the last attempt ends.
        let died = failures.last().map_or(letter.message.created, |failure| failure.at);
        Self {
            group: group.to_owned(),
            reason,
            failed_attempts: letter.message.failed_attempts(),
            died_at: text::rfc3339(died),
            failures: failures.into_iter().map(FailureShown::from).collect(),
            message: MessageShown::new(topic, letter.message),
            died,
        }
    }

    fn for_people(&self, now: Timestamp) -> String {
        let mut rows = self.message.fields(now);
        rows.push(("group", self.group.clone()));
        rows.push(("died", text::date(self.died, now)));
        rows.push(("reason", self.reason.lines().map(text::printable).collect::<Vec<_>>().join("\n")));
        let failures: Vec<String> = self.failures.iter().map(|failure| failure.for_people(now)).collect();
        rows.push(("failed", text::counted(self.failed_attempts.into(), "time")));
        rows.push(("failures", failures.join("\n")));
        fields(&rows)
    }
}

/// The number of retried or dropped dead letters, as it is printed.
#[derive(Debug, Serialize)]
struct Decided {
    topic: String,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retried: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<usize>,
}

/// Opens the dead letters of a group; a failure with exit code 4 if there is no such group.
async fn open(mill: &Sawmill, topic: &str, group: &str) -> Result<DeadLetters, Failure> {
    group::find(mill, topic, group).await?;
    Ok(mill.admin().dead_letters(topic, group).await?)
}

pub(crate) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    match command {
        Command::List { topic, group, limit } => list(&mill, &topic, &group.group, limit, session).await,
        Command::Show { which } => show(&mill, &which, session).await,
        Command::Retry { which } => {
            let retried = which.letters(&mill).await?.retry(which.which()).await?;
            decided(session, &which, Some(retried), None)
        }
        Command::Drop { which, yes } => {
            let letters = which.letters(&mill).await?;
            let what = match which.ids.as_slice() {
                [] => "all dead letters".to_owned(),
                ids => text::counted(ids.len() as u64, "dead letter"),
            };
            let (topic, group) = (&which.topic, &which.group.group);
            confirm(yes, &format!("Drop {what} of group {group} of topic {topic} for good?"))?;
            decided(session, &which, None, Some(letters.drop(which.which()).await?))
        }
    }
}

async fn list(
    mill: &Sawmill,
    topic: &str,
    group: &str,
    limit: usize,
    session: &Session,
) -> Result<(), Failure> {
    let letters = open(mill, topic, group).await?.list(limit).await?;
    let letters: Vec<Shown> = letters.into_iter().map(|letter| Shown::new(topic, group, letter)).collect();
    if session.out.is_json() {
        return session.out.list(&letters, |_| Table::new([]));
    }
    if letters.is_empty() {
        note(&format!("Group {group} of topic {topic} has no dead letters."));
        return Ok(());
    }
    let now = session.now();
    session.out.list(&letters, |letters| {
        let mut table = Table::new(["ID", "KEY", ">FAILED", "DIED", "REASON"]);
        for letter in letters {
            table.row([
                letter.message.id.as_str().into(),
                letter.message.key_preview(20).into(),
                letter.failed_attempts.to_string().into(),
                text::ago(letter.died, now).into(),
                text::preview(letter.reason.trim().as_bytes(), 70).into(),
            ]);
        }
        table
    })?;
    let (shown, all) = (letters.len() as u64, mill.admin().status(topic, group).await?.dead);
    if all > shown {
        note(&format!("{} of {}.", text::count(shown), text::counted(all, "dead letter")));
    }
    Ok(())
}

async fn show(mill: &Sawmill, which: &WhichArgs, session: &Session) -> Result<(), Failure> {
    let letters = which.letters(mill).await?;
    let mut found = Vec::new();
    match which.which() {
        DeadLetterSelection::All => found = letters.list(usize::MAX).await?,
        DeadLetterSelection::Ids(ids) => {
            for id in ids {
                found.push(letters.show(id).await?);
            }
        }
    }
    let now = session.now();
    for (index, letter) in found.into_iter().enumerate() {
        let shown = Shown::new(&which.topic, &which.group.group, letter);
        let gap = if index > 0 { "\n" } else { "" };
        session.out.object(&shown, |shown| format!("{gap}{}", shown.for_people(now)))?;
    }
    Ok(())
}

fn decided(
    session: &Session,
    which: &WhichArgs,
    retried: Option<usize>,
    dropped: Option<usize>,
) -> Result<(), Failure> {
    let (topic, group) = (which.topic.clone(), which.group.group.clone());
    let decided = Decided { topic, group, retried, dropped };
    if session.out.is_json() {
        return session.out.object(&decided, |_| String::new());
    }
    let Decided { topic, group, .. } = &decided;
    let letters = |count: usize| text::counted(count as u64, "dead letter");
    if let Some(count) = retried {
        note(&format!("Retried {} of group {group} of topic {topic}.", letters(count)));
    }
    if let Some(count) = dropped {
        note(&format!("Dropped {} of group {group} of topic {topic}.", letters(count)));
    }
    Ok(())
}
