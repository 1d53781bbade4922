//! Which group of a topic is meant.

use clap::Args;
use sawmill::Sawmill;

use crate::failure::Failure;
use crate::topic;

/// The group that most topics have.
pub(crate) const DEFAULT: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct GroupArg {
    /// The group
    #[arg(long, value_name = "GROUP", default_value = DEFAULT)]
    pub(crate) group: String,
}

/// The names of a topic's groups; a failure with exit code 4 if there is no such topic.
pub(crate) async fn names(mill: &Sawmill, topic: &str) -> Result<Vec<String>, Failure> {
    topic::find(mill, topic).await?;
    Ok(mill.groups(topic).await?.iter().map(ToString::to_string).collect())
}

/// A failure with exit code 4 if the topic has no such group.
pub(crate) async fn find(mill: &Sawmill, topic: &str, group: &str) -> Result<(), Failure> {
    let groups = names(mill, topic).await?;
    if groups.iter().any(|name| name == group) {
        return Ok(());
    }
    let there = match groups.as_slice() {
        [] => "a group begins with its first worker".to_owned(),
        groups => format!("it has {}", groups.join(", ")),
    };
    Err(Failure::not_found(format!("topic {topic} has no group {group}: {there}")))
}
