//! `sawmill topic`: create, list, show and delete topics.

use std::time::Duration;

use clap::{Args, Subcommand};
use sawmill::engine::model::Topic;
use sawmill::{ErrorKind, Sawmill, TopicSpec};
use serde::Serialize;

use crate::failure::{Code, Failure};
use crate::session::Session;
use crate::terminal::output::{confirm, note};
use crate::terminal::table::Table;
use crate::terminal::text;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a topic. An existing topic with the same shards stays as it is
    Create(Create),
    /// List all topics
    #[command(after_help = "Examples:\n  sawmill topic list\n  sawmill topic list --json | jq -r .topic")]
    List,
    /// Show the settings of a topic
    #[command(after_help = "Examples:\n  sawmill topic show emails")]
    Show {
        /// The topic
        topic: String,
    },
    /// Delete a topic, its messages and the state of its groups
    #[command(after_help = "Examples:\n  sawmill topic delete emails\n  sawmill topic delete emails --yes")]
    Delete {
        /// The topic
        topic: String,
        /// Do not ask for confirmation. This also finishes an interrupted deletion
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sawmill topic create emails\n  sawmill topic create clicks --shards 64 --retention 7d --drops-unread"
)]
pub(crate) struct Create {
    /// The topic
    topic: String,
    /// The number of shards: at most so many workers share an ordered group. It cannot be changed [default:
    /// 16]
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// The age from which messages may be dropped, once every group is past them [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = text::duration)]
    retention: Option<Duration>,
    /// Also drop older messages that some group has not read
    #[arg(long)]
    drops_unread: bool,
}

/// A topic as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    topic: String,
    shards: u16,
    retention_seconds: f64,
    drops_unread: bool,
}

impl From<Topic> for Shown {
    fn from(topic: Topic) -> Self {
        Self {
            topic: topic.name.to_string(),
            shards: topic.shards,
            retention_seconds: topic.retention.as_secs_f64(),
            drops_unread: topic.drops_unread,
        }
    }
}

impl Shown {
    fn retention(&self) -> String {
        text::span(Duration::from_secs_f64(self.retention_seconds))
    }

    fn for_people(&self) -> String {
        let unread = if self.drops_unread { "dropped too" } else { "kept until every group is past them" };
        format!(
            "topic      {}\nshards     {}\nretention  {}\nunread     {unread}",
            self.topic,
            self.shards,
            self.retention(),
        )
    }
}

pub(crate) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    match command {
        Command::Create(args) => {
            let topic = create(&mill, args).await?;
            session.out.object(&Shown::from(topic), Shown::for_people)
        }
        Command::List => {
            let topics: Vec<Shown> = mill.admin().topics().await?.into_iter().map(Shown::from).collect();
            if topics.is_empty() && !session.out.is_json() {
                note("There are no topics yet: `sawmill push TOPIC PAYLOAD` makes one.");
                return Ok(());
            }
            session.out.list(&topics, |topics| {
                let mut table = Table::new(["TOPIC", ">SHARDS", ">RETENTION", "UNREAD"]);
                for topic in topics {
                    let unread = if topic.drops_unread { "dropped too" } else { "kept" };
                    table.row([
                        topic.topic.as_str().into(),
                        topic.shards.to_string().into(),
                        topic.retention().into(),
                        unread.into(),
                    ]);
                }
                table
            })
        }
        Command::Show { topic } => {
            let topic = find(&mill, &topic).await?;
            session.out.object(&Shown::from(topic), Shown::for_people)
        }
        Command::Delete { topic, yes } => {
            delete(&mill, &topic, yes).await?;
            note(&format!("Deleted topic {topic}."));
            Ok(())
        }
    }
}

/// Deletes a topic. With `yes` and no topic, deletes the lanes that an interrupted deletion has left, which
/// no list shows.
async fn delete(mill: &Sawmill, topic: &str, yes: bool) -> Result<(), Failure> {
    let absent = match find(mill, topic).await {
        Ok(_) => None,
        Err(failure) if failure.code() == Code::NotFound && yes => Some(failure),
        Err(failure) => return Err(failure),
    };
    confirm(yes, &format!("Delete topic {topic} with all its messages?"))?;
    match (mill.admin().delete_topic(topic).await, absent) {
        (Err(error), Some(absent)) if error.kind() == ErrorKind::NotFound => Err(absent),
        (deleted, _) => deleted.map_err(Failure::from),
    }
}

async fn create(mill: &Sawmill, args: Create) -> Result<Topic, Failure> {
    let mut spec = TopicSpec::new(args.topic.parse()?);
    spec.shards = args.shards.unwrap_or(spec.shards);
    spec.retention = args.retention.unwrap_or(spec.retention);
    spec.drops_unread = args.drops_unread;
    let topic = mill.create_topic_with(&spec).await?;
    let is_as_wished = args.retention.is_none_or(|retention| retention == topic.retention)
        && (!args.drops_unread || topic.drops_unread);
    match is_as_wished {
        true => Ok(topic),
        false => Err(Failure::failed(format!(
            "topic {} exists with other settings, and they cannot be changed: see `sawmill topic show {}`",
            topic.name, topic.name
        ))),
    }
}

/// Finds a topic; a failure with exit code 4 if it does not exist.
pub(crate) async fn find(mill: &Sawmill, name: &str) -> Result<Topic, Failure> {
    let found = mill.admin().topics().await?.into_iter().find(|topic| topic.name.to_string() == name);
    found.ok_or_else(|| {
        Failure::not_found(format!("topic {name} does not exist: `sawmill topic list` shows those that do"))
    })
}

/// Finds a topic, or creates it with default settings if `create` is set. Creation is reported, as the name
/// may be a typing error.
pub(crate) async fn ensure(mill: &Sawmill, name: &str, create: bool) -> Result<Topic, Failure> {
    match find(mill, name).await {
        Err(failure) if failure.code() == Code::NotFound && create => {
            let topic = mill.create_topic(name).await?;
            note(&format!("created topic {} ({} shards)", topic.name, topic.shards));
            Ok(topic)
        }
        found => found,
    }
}
