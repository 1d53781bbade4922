//! The group argument of commands, and lookups of groups.

use clap::Args;
use sawmill::Sawmill;

use crate::commands::topic;
use crate::failure::Failure;

/// The name of the group if none is given.
pub(crate) const DEFAULT: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct GroupArg {
    /// The group
    #[arg(long, value_name = "GROUP", default_value = DEFAULT)]
    pub(crate) group: String,
}

/// Returns the names of a topic's groups; a failure with exit code 4 if there is no such topic.
pub(crate) async fn names(mill: &Sawmill, topic: &str) -> Result<Vec<String>, Failure> {
    topic::find(mill, topic).await?;
    Ok(mill.admin().groups(topic).await?.iter().map(ToString::to_string).collect())
}

/// Checks that the topic has this group; a failure with exit code 4 if not.
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
