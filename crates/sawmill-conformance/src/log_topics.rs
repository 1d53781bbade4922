//! Checks of a log: topics are created, found, isolated and deleted.

use std::time::Duration;

use sawmill::engine::model::{GroupName, Lane, MAX_GROUP_NAME, MAX_SHARDS, MAX_TOPIC_NAME, TopicName};
use sawmill::{ErrorKind, TopicSpec};

use crate::Place;
use crate::place::{spec, together};
use crate::reader::{Reader, assert_says};
use crate::sample::{assert_refused, now, record, record_due, seconds_after};

fn name(text: &str) -> TopicName {
    text.parse().expect("the suite uses good names")
}

/// A created topic is found by its name, from every handle, with its settings.
pub async fn c12_a_created_topic_is_found_as_it_was_made(place: Place) {
    let log = place.log().await;
    assert_eq!(log.topic(&name("orders")).await.expect("a topic is looked up"), None);
    let spec = TopicSpec { retention: Duration::from_secs(77), ..spec("orders", 5) };
    let made = log.create_topic(&spec).await.expect("a topic is created");
    assert_eq!((&made.name, made.shards, made.retention), (&spec.name, spec.shards, spec.retention));
    for handle in [log, place.log().await] {
        let found = handle.topic(&name("orders")).await.expect("a topic is looked up");
        assert_eq!(found.as_ref(), Some(&made));
        assert_eq!(handle.topics().await.expect("topics are listed"), std::slice::from_ref(&made));
    }
}

/// Creating an existing topic with the same number of shards returns it.
pub async fn c10_creating_a_topic_again_finds_it(place: Place) {
    let log = place.log().await;
    let made = place.topic(&log, "orders", 3).await;
    log.append(&made, now(), vec![record(1, "kept")]).await.expect("a message is appended");
    for handle in [log.clone(), place.log().await] {
        let again = handle.create_topic(&spec("orders", 3)).await.expect("the topic is found");
        assert_eq!(again, made);
        let other_retention = TopicSpec { retention: Duration::from_secs(1), ..spec("orders", 3) };
        let again = handle.create_topic(&other_retention).await.expect("the topic is found");
        assert_eq!(again.uid, made.uid);
    }
    assert_says(&place, &log, &made, 1, &["kept"]).await;
}

/// Creating an existing topic with another number of shards is refused, and the topic stays as it is.
pub async fn a_topic_with_other_shards_is_refused_and_stays_as_it_is(place: Place) {
    let log = place.log().await;
    let made = place.topic(&log, "orders", 3).await;
    log.append(&made, now(), vec![record(2, "kept")]).await.expect("a message is appended");
    for shards in [1, 2, 4, 16] {
        let answer = log.create_topic(&spec("orders", shards)).await;
        assert_refused("a topic with another number of shards", answer, ErrorKind::Exists);
    }
    assert_eq!(log.topic(&made.name).await.expect("a topic is looked up"), Some(made.clone()));
    assert_says(&place, &log, &made, 2, &["kept"]).await;
}

/// A topic cannot have zero shards, or more than the limit.
pub async fn impossible_numbers_of_shards_are_refused(place: Place) {
    let log = place.log().await;
    for shards in [0, MAX_SHARDS + 1, u16::MAX] {
        let answer = log.create_topic(&spec("orders", shards)).await;
        assert_refused(&format!("a topic with {shards} shards"), answer, ErrorKind::Invalid);
    }
    assert_eq!(log.topics().await.expect("topics are listed"), []);
}

/// When several create the same topic at once, all get the same one.
pub async fn creating_a_topic_at_once_makes_one(place: Place) {
    let mut handles = Vec::new();
    for _ in 0..8 {
        handles.push(place.log().await);
    }
    let made = together(handles.into_iter().map(|log| async move {
        log.create_topic(&spec("orders", 2)).await.expect("the topic is created or found").uid
    }))
    .await;
    assert!(made.iter().all(|uid| *uid == made[0]), "one topic has one uid: {made:?}");
    assert_eq!(place.log().await.topics().await.expect("topics are listed").len(), 1);
}

/// All topics are listed by name, lanes included.
pub async fn topics_are_listed_by_name_with_their_lanes(place: Place) {
    let log = place.log().await;
    let names = ["a", "a@g.dead", "b", "b@g.retry", "ba", "c"];
    for place_in_list in [3, 0, 5, 2, 4, 1] {
        place.topic(&log, names[place_in_list], 1).await;
    }
    let listed = log.topics().await.expect("topics are listed");
    let listed: Vec<String> = listed.iter().map(|topic| topic.name.to_string()).collect();
    assert_eq!(listed, names);
}

/// Topics with similar names, and a topic and its lanes, share nothing.
pub async fn topics_with_similar_names_and_lanes_are_kept_apart(place: Place) {
    let log = place.log().await;
    let orders = name("orders");
    let group: GroupName = "g".parse().expect("the suite uses good names");
    let mut names: Vec<TopicName> =
        ["orders", "Orders", "order", "orders.g", "orders_g", "orders-g", "orders.g.retry", "0"]
            .map(name)
            .to_vec();
    names.push(orders.lane(&group, Lane::Retry));
    names.push(orders.lane(&group, Lane::Dead));
    names.push(orders.lane(&"G".parse().expect("the suite uses good names"), Lane::Dead));
    let mut topics = Vec::new();
    for name in &names {
        let topic = place.topic(&log, &name.to_string(), 1).await;
        assert_eq!(&topic.name, name);
        log.append(&topic, now(), vec![record(0, name.to_string())]).await.expect("a message is appended");
        topics.push(topic);
    }
    for topic in &topics {
        assert_says(&place, &log, topic, 0, &[topic.name.to_string()]).await;
        assert_eq!(log.topic(&topic.name).await.expect("a topic is looked up").as_ref(), Some(topic));
    }
    assert!(log.delete_topic(&topics[0]).await.expect("a topic is deleted"));
    for topic in &topics[1..] {
        assert_says(&place, &log, topic, 0, &[topic.name.to_string()]).await;
    }
}

/// The longest names that the library allows can be used, and their last letter counts.
pub async fn the_longest_names_can_be_used(place: Place) {
    let log = place.log().await;
    let base = "t".repeat(MAX_TOPIC_NAME - 1);
    let group = "g".repeat(MAX_GROUP_NAME - 1);
    for text in [
        format!("{base}1"),
        format!("{base}2"),
        format!("{base}1@{group}1.retry"),
        format!("{base}1@{group}2.retry"),
    ] {
        let topic = place.topic(&log, &text, 1).await;
        log.append(&topic, now(), vec![record(0, text.clone())]).await.expect("a message is appended");
        assert_says(&place, &log, &topic, 0, &[text]).await;
    }
}

/// A topic's uid consists of letters and digits, and is unique.
pub async fn uids_are_letters_and_digits_and_differ(place: Place) {
    let log = place.log().await;
    let mut uids = Vec::new();
    for text in ["a", "b", "c", "a@g.dead"] {
        uids.push(place.topic(&log, text, 1).await.uid);
    }
    for uid in &uids {
        let good = !uid.is_empty() && uid.chars().all(|c| c.is_ascii_alphanumeric());
        assert!(good, "a uid is made of letters and digits, and this is {uid:?}");
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 4, "every topic has a uid of its own: {uids:?}");
}

/// A deleted topic is gone with its messages; a second delete says that there was none.
pub async fn a_deleted_topic_is_gone(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let other = place.topic(&log, "other", 2).await;
    log.append(&topic, now(), vec![record(0, "old")]).await.expect("a message is appended");
    assert!(log.delete_topic(&topic).await.expect("a topic is deleted"), "the topic was there");
    for handle in [log, place.log().await] {
        assert_eq!(handle.topic(&topic.name).await.expect("a topic is looked up"), None);
        assert_eq!(handle.topics().await.expect("topics are listed"), std::slice::from_ref(&other));
        assert!(
            !handle.delete_topic(&topic).await.expect("nothing is deleted"),
            "there was no topic any more"
        );
    }
}

/// A topic created under the name of a deleted one has another uid, may have other shards, and inherits
/// nothing: no messages, none kept aside, no ids.
pub async fn a_recreated_topic_is_another_topic(place: Place) {
    let (log, old) = place.log_and_topic("orders", 3).await;
    let later = seconds_after(now(), 600);
    let batch = vec![record(0, "read"), record(1, "also"), record_due(2, "aside", later)];
    log.append(&old, now(), batch.clone()).await.expect("messages are appended");
    Reader::new(&place, &log, &old, 0).until(1, 10).await;
    assert!(log.delete_topic(&old).await.expect("a topic is deleted"));

    let new = place.topic(&log, "orders", 4).await;
    assert_ne!(new.uid, old.uid, "a uid is never used again");
    assert_eq!(new.shards, 4);
    for shard in 0..4 {
        assert_says::<&str>(&place, &log, &new, shard, &[]).await;
    }
    let promoted = log.promote(&new, later, 10).await.expect("nothing is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (0, None), "what was kept aside went with the old topic");

    log.append(&new, now(), batch[..1].to_vec()).await.expect("a message is appended");
    assert_says(&place, &log, &new, 0, &["read"]).await;
}

/// Deleting by the uid of an old topic leaves the new one of the same name alone.
pub async fn deleting_an_old_topic_leaves_the_new_one_alone(place: Place) {
    let (log, old) = place.log_and_topic("orders", 1).await;
    assert!(log.delete_topic(&old).await.expect("a topic is deleted"));
    let new = place.topic(&log, "orders", 1).await;
    log.append(&new, now(), vec![record(0, "new")]).await.expect("a message is appended");
    assert!(!log.delete_topic(&old).await.expect("nothing is deleted"), "the old topic was gone already");
    assert_eq!(log.topic(&new.name).await.expect("a topic is looked up"), Some(new.clone()));
    assert_says(&place, &log, &new, 0, &["new"]).await;
}

/// A uid is not reused, even if the topic that had it was the last one and the store was reopened.
pub async fn a_uid_is_not_used_again_after_a_reopen(place: Place) {
    let mut uids = Vec::new();
    for _ in 0..4 {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert!(!uids.contains(&topic.uid), "uid {} is used again", topic.uid);
        assert!(log.delete_topic(&topic).await.expect("a topic is deleted"));
        uids.push(topic.uid);
    }
}

/// Namespaces do not see one another: neither topics nor messages, kept aside or not.
pub async fn namespaces_share_nothing(place: Place) {
    let elsewhere = place.elsewhere();
    let (here, ours) = place.log_and_topic("orders", 1).await;
    let there = elsewhere.log().await;
    assert_eq!(there.topics().await.expect("topics are listed"), []);
    assert_eq!(there.topic(&ours.name).await.expect("a topic is looked up"), None);

    let theirs = elsewhere.topic(&there, "orders", 1).await;
    let later = seconds_after(now(), 600);
    let same = record(0, "same id");
    here.append(&ours, now(), vec![record(0, "ours"), same.clone()]).await.expect("messages are appended");
    here.append(&ours, now(), vec![record_due(0, "aside", later)]).await.expect("a message is kept aside");
    there.append(&theirs, now(), vec![record(0, "theirs"), same]).await.expect("messages are appended");
    assert_says(&place, &here, &ours, 0, &["ours", "same id"]).await;
    assert_says(&elsewhere, &there, &theirs, 0, &["theirs", "same id"]).await;
    let promoted = there.promote(&theirs, later, 10).await.expect("nothing is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (0, None), "what is kept aside elsewhere is not ours");

    assert!(here.delete_topic(&ours).await.expect("a topic is deleted"));
    assert_eq!(there.topics().await.expect("topics are listed"), std::slice::from_ref(&theirs));
    assert_says(&elsewhere, &there, &theirs, 0, &["theirs", "same id"]).await;
}
