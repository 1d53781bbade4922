//! `sawmill cron`: schedules that push messages.

use std::io::Read;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sawmill::{Missed, Push, Schedule, Scheduled, Timestamp};
use serde::Serialize;

use crate::commands::topic;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::table::Table;
use crate::terminal::text::{self, text_or_base64};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a schedule to a topic, or replace the one with the same name
    Add(Add),
    /// List schedules and their next tick
    #[command(after_help = "Examples:\n  sawmill cron list\n  sawmill cron list reports --json")]
    List {
        /// Only schedules of this topic
        topic: Option<String>,
    },
    /// Remove a schedule. Messages that it has pushed stay
    #[command(after_help = "Examples:\n  sawmill cron remove reports nightly")]
    Remove {
        /// The topic
        topic: String,
        /// The name of the schedule
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Ticks are pushed only while the topic has a worker. A cron expression has five fields: minute, hour,
day of month, month and day of week. It follows the clock of its time zone and its
daylight saving time.

Examples:
  sawmill cron add reports nightly '0 3 * * *' --tz Europe/Berlin --payload all
  sawmill cron add health ping --every 30s
  sawmill cron add reports weekly '0 8 * * MON' --missed skip --payload - < report.json")]
pub(crate) struct Add {
    /// The topic. It is created with default settings if it does not exist
    topic: String,
    /// The name of the schedule
    name: String,
    /// The cron expression
    #[arg(value_name = "EXPRESSION", required_unless_present = "every", conflicts_with = "every")]
    expression: Option<String>,
    /// The period, instead of an expression. Ticks are at whole multiples of it
    #[arg(long, value_name = "DURATION", value_parser = text::duration, conflicts_with = "tz")]
    every: Option<Duration>,
    /// The time zone of the expression, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// The payload of each message; `-` reads stdin [default: empty]
    #[arg(long, value_name = "TEXT")]
    payload: Option<String>,
    /// The key of each message
    #[arg(long)]
    key: Option<String>,
    /// A header of each message. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// The ticks to push after a time without workers: the latest, all, or none older than a minute
    #[arg(long, value_enum, default_value_t = MissedArg::Once)]
    missed: MissedArg,
    /// Fail if the topic does not exist
    #[arg(long)]
    no_create: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MissedArg {
    Once,
    All,
    Skip,
}

impl From<MissedArg> for Missed {
    fn from(missed: MissedArg) -> Self {
        match missed {
            MissedArg::Once => Missed::Once,
            MissedArg::All => Missed::All,
            MissedArg::Skip => Missed::Skip,
        }
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A schedule as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    topic: String,
    name: String,
    timing: String,
    next_at: Option<String>,
    missed: Missed,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip)]
    next: Option<Timestamp>,
    #[serde(skip)]
    preview: String,
}

impl Shown {
    fn new(topic: impl ToString, scheduled: &Scheduled) -> Self {
        let schedule = &scheduled.schedule;
        let (payload, payload_base64) = text_or_base64(schedule.payload());
        let (key, key_base64) = schedule.key().map_or((None, None), |key| text_or_base64(key));
        Self {
            topic: topic.to_string(),
            name: schedule.name().to_owned(),
            timing: schedule.timing(),
            next_at: scheduled.next().map(text::rfc3339),
            missed: schedule.when_missed(),
            key: key.map(str::to_owned),
            key_base64,
            payload: payload.map(str::to_owned),
            payload_base64,
            next: scheduled.next(),
            preview: text::preview(schedule.payload(), 40),
        }
    }

    fn next(&self, now: Timestamp) -> String {
        match self.next {
            None => "never".to_owned(),
            Some(next) if next <= now => "when a worker comes".to_owned(),
            Some(next) => text::date(next, now),
        }
    }
}

pub(crate) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add(args, session).await,
        Command::List { topic } => list(topic, session).await,
        Command::Remove { topic, name } => {
            let mill = session.open().await?;
            topic::find(&mill, &topic).await?;
            if !mill.unschedule(&topic, &name).await? {
                return Err(Failure::not_found(format!(
                    "topic {topic} has no schedule {name}: `sawmill cron list {topic}` shows those it has"
                )));
            }
            match session.out.is_json() {
                true => session.out.object(&Removed { topic, name }, |_| String::new()),
                false => {
                    note(&format!("Removed schedule {name} of topic {topic}."));
                    Ok(())
                }
            }
        }
    }
}

/// The removed schedule, as it is printed.
#[derive(Debug, Serialize)]
struct Removed {
    topic: String,
    name: String,
}

async fn add(args: Add, session: &Session) -> Result<(), Failure> {
    let schedule = match (&args.expression, args.every) {
        (_, Some(period)) => Schedule::every(&args.name, period)?,
        (expression, None) => {
            let zone = args.tz.as_deref().unwrap_or("UTC");
            Schedule::cron(&args.name, expression.as_deref().unwrap_or_default(), zone)?
        }
    };
    let mut message = Push::new(payload(args.payload)?);
    if let Some(key) = args.key {
        message = message.key(key);
    }
    for (name, value) in args.header {
        message = message.header(name, value);
    }
    let mill = session.open().await?;
    topic::ensure(&mill, &args.topic, !args.no_create).await?;
    mill.schedule(&args.topic, schedule.message(message).missed(args.missed.into())).await?;
    let schedules = mill.schedules(&args.topic).await?;
    let Some(scheduled) = schedules.iter().find(|scheduled| scheduled.schedule.name() == args.name) else {
        return Err(Failure::failed(format!("schedule {} was removed at the same time", args.name)));
    };
    let shown = Shown::new(&args.topic, scheduled);
    if session.out.is_json() {
        return session.out.object(&shown, |_| String::new());
    }
    let next = shown.next(session.now());
    note(&format!("Schedule {} of topic {}: {}; next {next}.", shown.name, shown.topic, shown.timing));
    if mill.admin().all_workers().await?.iter().all(|member| !member.topics.contains(&args.topic)) {
        note("The topic has no worker yet: ticks are pushed while it has one.");
    }
    Ok(())
}

fn payload(text: Option<String>) -> Result<Vec<u8>, Failure> {
    match text.as_deref() {
        Some("-") => {
            let mut bytes = Vec::new();
            let unreadable = |error| Failure::failed(format!("stdin could not be read: {error}"));
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(unreadable)?;
            Ok(bytes)
        }
        text => Ok(text.unwrap_or_default().into()),
    }
}

async fn list(only: Option<String>, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let topics = match only {
        Some(name) => vec![topic::find(&mill, &name).await?],
        None => mill.admin().topics().await?,
    };
    let mut schedules = Vec::new();
    for topic in topics {
        let name = topic.name.to_string();
        schedules.extend(mill.schedules(&name).await?.iter().map(|scheduled| Shown::new(&name, scheduled)));
    }
    if schedules.is_empty() && !session.out.is_json() {
        note("There are no schedules: `sawmill cron add` makes one.");
        return Ok(());
    }
    let now = session.now();
    session.out.list(&schedules, |schedules| {
        let mut table = Table::new(["TOPIC", "NAME", "WHEN", "NEXT", "MISSED", "PAYLOAD"]);
        for schedule in schedules {
            let missed = match schedule.missed {
                Missed::Once => "once",
                Missed::All => "all",
                Missed::Skip => "skip",
            };
            table.row([
                schedule.topic.as_str().into(),
                schedule.name.as_str().into(),
                schedule.timing.as_str().into(),
                schedule.next(now).into(),
                missed.into(),
                schedule.preview.as_str().into(),
            ]);
        }
        table
    })
}
