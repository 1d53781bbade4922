//! `sawmill show`: shows a message and its state in each group.

use std::io::{self, Write};

use clap::Args;
use sawmill::admin::{MessageState, MessageStatus};
use sawmill::engine::model::GroupName;
use sawmill::{MessageId, Timestamp};
use serde::Serialize;

use crate::failure::Failure;
use crate::message::{FailureShown, MessageShown};
use crate::session::Session;
use crate::terminal::table::{Cell, Table, fields};
use crate::terminal::text;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sawmill show 01KA5WZJ2M8Q4T6V8X0Y2A4C6E
  sawmill show 01KA5WZJ2M8Q4T6V8X0Y2A4C6E --payload > letter.txt")]
pub(crate) struct ShowArgs {
    /// The message id, as `sawmill push` printed it
    id: MessageId,
    /// Print only the payload, unchanged
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

/// A message and its states, as they are printed.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    message: MessageShown,
    groups: Vec<InGroup>,
}

/// The state of the message in one group.
#[derive(Debug, Serialize)]
pub(crate) struct InGroup {
    pub(crate) group: String,
    pub(crate) state: &'static str,
    worker: Option<String>,
    failed_attempts: u32,
    next_attempt_at: Option<String>,
    reason: Option<String>,
    failures: Vec<FailureShown>,
    #[serde(skip)]
    due: Option<Timestamp>,
}

impl InGroup {
    pub(crate) fn new(group: &GroupName, status: MessageState) -> Self {
        let mut shown = Self {
            group: group.to_string(),
            state: state_name(&status),
            worker: None,
            failed_attempts: 0,
            next_attempt_at: None,
            reason: None,
            failures: Vec::new(),
            due: None,
        };
        match status {
            MessageState::Claimed { worker, failed } => {
                (shown.worker, shown.failed_attempts) = (worker.map(|worker| worker.to_string()), failed);
            }
            MessageState::Retrying { failed, due, failures, worker } => {
                (shown.worker, shown.failed_attempts) = (worker.map(|worker| worker.to_string()), failed);
                (shown.due, shown.next_attempt_at) = (due, due.map(text::rfc3339));
                shown.failures = failures.into_iter().map(FailureShown::from).collect();
            }
            MessageState::Dead { reason, failed, failures } => {
                (shown.reason, shown.failed_attempts) = (Some(reason), failed);
                shown.failures = failures.into_iter().map(FailureShown::from).collect();
            }
            _ => {}
        }
        shown
    }

    fn state_cell(&self) -> Cell {
        match self.state {
            "done" => Cell::good(self.state),
            "dead" => Cell::bad(self.state),
            "retrying" => Cell::worrying(self.state),
            state => state.into(),
        }
    }

    /// The details beyond the state.
    fn details(&self, now: Timestamp) -> String {
        let mut said = Vec::new();
        match (self.state, &self.worker) {
            ("claimed", None) => said.push("given back, to be taken by another worker".to_owned()),
            (_, Some(worker)) => said.push(format!("by {worker}")),
            ("past", _) => said.push("done, skipped or dropped: which of these is not kept".to_owned()),
            _ => {}
        }
        if self.state == "retrying" && self.worker.is_none() {
            let when = match self.due.filter(|due| *due > now) {
                Some(due) => text::ago(due, now),
                None => "waits for a worker".to_owned(),
            };
            said.push(format!("attempt {} {when}", self.failed_attempts + 1));
        }
        if let Some(reason) = &self.reason {
            said.push(text::preview(reason.trim().as_bytes(), 100));
        } else if let Some(last) = self.failures.last() {
            said.push(format!("last error: {}", text::preview(last.error().trim().as_bytes(), 100)));
        } else if self.failed_attempts > 0 {
            said.push(format!("failed {}", text::counted(self.failed_attempts.into(), "time")));
        }
        said.join("; ")
    }
}

/// The name of a state, as JSON has it.
pub(crate) fn state_name(state: &MessageState) -> &'static str {
    match state {
        MessageState::Scheduled => "scheduled",
        MessageState::Waiting => "waiting",
        MessageState::Claimed { .. } => "claimed",
        MessageState::Retrying { .. } => "retrying",
        MessageState::Done => "done",
        MessageState::Dead { .. } => "dead",
        MessageState::Cancelled => "cancelled",
        _ => "past",
    }
}

/// Returns the failure for an unknown id.
pub(crate) fn unknown(id: MessageId) -> Failure {
    Failure::not_found(format!(
        "there is no message {id} (any more): a topic drops messages after its retention, once every group is past them"
    ))
}

pub(crate) async fn run(args: ShowArgs, session: &Session) -> Result<(), Failure> {
    let mill = session.open().await?;
    let found = mill.admin().show(args.id).await?.ok_or_else(|| unknown(args.id))?;
    if args.payload {
        let mut out = io::stdout().lock();
        out.write_all(&found.message.payload)?;
        return Ok(out.flush()?);
    }
    let MessageStatus { topic, message, groups, .. } = found;
    let groups = groups.into_iter().map(|(group, status)| InGroup::new(&group, status)).collect();
    let shown = Shown { message: MessageShown::new(&topic.name, message), groups };
    session.out.object(&shown, |shown| for_people(shown, session.now()))
}

fn for_people(shown: &Shown, now: Timestamp) -> String {
    let mut said = fields(&shown.message.fields(now));
    if shown.groups.is_empty() {
        return said + "\n\nNo group reads this topic yet: the message waits for the first worker.";
    }
    let mut table = Table::new(["GROUP", "STATE", "DETAILS"]);
    for group in &shown.groups {
        table.row([group.group.as_str().into(), group.state_cell(), group.details(now).into()]);
    }
    said += &format!("\n\n{}", table.to_string().trim_end());
    for group in shown.groups.iter().filter(|group| !group.failures.is_empty()) {
        let failures: Vec<String> = group.failures.iter().map(|failure| failure.for_people(now)).collect();
        said += &format!("\n\nFailures in group {}:\n{}", group.group, failures.join("\n"));
    }
    said
}
