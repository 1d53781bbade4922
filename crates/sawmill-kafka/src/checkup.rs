//! Finds settings under which working brokers can lose messages that they have acknowledged.
//!
//! A broker does not wait for its disk before it answers. Durability therefore depends on the replicas.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use sawmill_engine::storage::Finding;
use sawmill_engine::{Error, ErrorKind, Result};

use crate::error::{DriverContext, explain};
use crate::store::Kafka;

/// Time limit for the list of topics.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// The most topics that a finding names; the rest are counted.
const MAX_NAMED: usize = 3;

/// The settings of a topic that decide how durable it is.
#[derive(Debug)]
struct TopicDurability {
    topic: String,
    /// The smallest number of replicas among its partitions.
    copies: usize,
    /// The number of replicas that must have a message before it is acknowledged.
    needed: usize,
    /// A replica that lacks messages may become the leader.
    elects_unclean: bool,
}

impl Kafka {
    pub(crate) async fn durability_findings(&self) -> Result<Vec<Finding>> {
        let mut ours = BTreeSet::new();
        for topic in self.all_topics().await? {
            if let (_, Some(listed)) = self.catalogue_entry(&topic.name)? {
                ours.extend(listed.aside.then(|| listed.aside_topic()));
                ours.insert(listed.kafka);
            }
        }
        let mut kept = Vec::new();
        for (topic, copies) in self.copies().await? {
            if !ours.contains(&topic) && *topic != *self.coordination.topic {
                continue;
            }
            let names = ["min.insync.replicas", "unclean.leader.election.enable"];
            let said = match self.cluster.settings(&topic, &names).await {
                // It was deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                said => said?,
            };
            let said = |at: usize| said.get(at).and_then(Option::as_deref);
            let needed = said(0).and_then(|text| text.parse().ok()).unwrap_or(1);
            kept.push(TopicDurability { topic, copies, needed, elects_unclean: said(1) == Some("true") });
        }
        Ok(unsafe_settings(&kept))
    }

    /// Lists all topics in Kafka with their number of replicas, sorted by name.
    async fn copies(&self) -> Result<Vec<(String, usize)>> {
        let mut config = self.cluster.address.config();
        config.set("allow.auto.create.topics", "false");
        let ask = move || {
            let consumer: BaseConsumer<DriverContext> = config.create_with_context(DriverContext)?;
            let metadata = consumer.fetch_metadata(None, ANSWER_TIMEOUT)?;
            let fewest = |topic: &rdkafka::metadata::MetadataTopic| {
                topic.partitions().iter().map(|partition| partition.replicas().len()).min()
            };
            let topics = metadata.topics().iter();
            let mut found: Vec<_> =
                topics.filter_map(|topic| Some((topic.name().to_owned(), fewest(topic)?))).collect();
            found.sort();
            KafkaResult::Ok(found)
        };
        let answer = self.cluster.env.blocking(ask).await.and_then(|answer| answer.ok());
        let gone = || Error::new(ErrorKind::Unavailable, "the store is being closed");
        answer.ok_or_else(gone)?.map_err(|error| explain(&error))
    }
}

/// Describes the unsafe settings of these topics.
fn unsafe_settings(kept: &[TopicDurability]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |is_unsafe: &dyn Fn(&TopicDurability) -> bool, danger: &str, what_to_do: &str| {
        let names: Vec<&str> =
            kept.iter().filter(|kept| is_unsafe(kept)).map(|kept| kept.topic.as_str()).collect();
        if !names.is_empty() {
            findings.push(Finding::new("durability", format!("{danger}: {}", name_list(&names)), what_to_do));
        }
    };
    found(
        &|kept| kept.copies < 2,
        "one broker alone has what is in these topics, and does not wait for its disk: a crash of its machine loses messages that it \
         has acknowledged",
        "have three brokers, say replication=3 in the store's URL for topics to come, and give these more copies \
         (kafka-reassign-partitions)",
    );
    found(
        &|kept| kept.copies > 1 && kept.needed < 2,
        "min.insync.replicas is 1: while the other brokers are behind, one alone acknowledges what is pushed to these topics, and a \
         crash of its machine loses it",
        "set min.insync.replicas = 2 for these topics (kafka-configs), with three copies of each",
    );
    found(
        &|kept| kept.copies > 1 && kept.elects_unclean,
        "unclean.leader.election.enable is true: a broker that lacks acknowledged messages of these topics may become their leader, \
         and they are lost",
        "set unclean.leader.election.enable = false for these topics (kafka-configs)",
    );
    findings
}

fn name_list(names: &[&str]) -> String {
    let named = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(topic: &str, copies: usize, needed: usize, elects_unclean: bool) -> TopicDurability {
        TopicDurability { topic: topic.to_owned(), copies, needed, elects_unclean }
    }

    #[test]
    fn topics_that_a_crash_takes_something_from_are_named() {
        let safe = || kept("safe", 3, 2, false);
        assert!(unsafe_settings(&[]).is_empty() && unsafe_settings(&[safe()]).is_empty());
        for (one, setting) in [
            // With a single replica the other settings mean nothing.
            (kept("one", 1, 1, true), "one broker alone"),
            (kept("one", 3, 1, false), "min.insync.replicas"),
            (kept("one", 3, 2, true), "unclean.leader.election.enable"),
        ] {
            let found = unsafe_settings(&[safe(), one]);
            assert_eq!(found.len(), 1, "{found:?}");
            let what = &found[0].what;
            assert!(what.contains(setting) && what.ends_with(": one"), "{what}");
        }
    }

    #[test]
    fn many_topics_are_counted() {
        let all: Vec<TopicDurability> = (0..9).map(|n| kept(&format!("t{n}"), 1, 1, false)).collect();
        let found = unsafe_settings(&all);
        assert!(found.len() == 1 && found[0].what.ends_with(": t0, t1, t2 and 6 more"), "{found:?}");
    }
}
