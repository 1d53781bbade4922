//! Invalid names, and names of things that do not exist.

use sawmill::admin::DeadLetterSelection;
use sawmill::{Context, ErrorKind, MessageId, Sawmill, TopicSpec};
use sawmill_engine::model::{MAX_GROUP_NAME, MAX_SHARDS, MAX_TOPIC_NAME};
use sawmill_sqlite::SqliteEngine;

use crate::{Store, refused};

async fn nothing(_: Context) {}

#[tokio::test]
async fn broken_topic_names_are_refused_wherever_they_are_used() {
    let Store { mill, folder: _folder } = Store::new().await;
    let long = "x".repeat(MAX_TOPIC_NAME + 1);
    for (name, said) in [
        ("", ["empty", "use letters, digits"]),
        ("two words", ["' '", "use letters, digits"]),
        ("-x", ["begins with a sign", "use letters, digits"]),
        (".", ["begins with a sign", "use letters, digits"]),
        ("grün", ["'ü'", "use letters, digits"]),
        ("a/b", ["'/'", "use letters, digits"]),
        ("a\0b", ["'\\0'", "use letters, digits"]),
        ("'; DROP TABLE topic; --", ["'\\''", "use letters, digits"]),
        (&long, ["101 characters, and 100 is the limit", "choose a shorter one"]),
    ] {
        refused(mill.create_topic(name).await, ErrorKind::Invalid, &said);
        refused(mill.push(name, "x").await, ErrorKind::Invalid, &said);
        refused(mill.worker(name).start(nothing).await, ErrorKind::Invalid, &said);
        refused(mill.admin().status(name, "default").await, ErrorKind::Invalid, &said);
        refused(mill.admin().dead_letters(name, "default").await, ErrorKind::Invalid, &said);
        refused(mill.admin().delete_topic(name).await, ErrorKind::Invalid, &said);
    }
    assert_eq!(mill.admin().topics().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_longest_names_are_fine() {
    let Store { mill, folder: _folder } = Store::new().await;
    let (topic, group) = ("x".repeat(MAX_TOPIC_NAME), "y".repeat(MAX_GROUP_NAME));
    mill.create_topic(&topic).await.unwrap();
    mill.push(&topic, "x").await.unwrap();
    let worker = mill.worker(&topic).group(&group).name("z".repeat(60)).start(nothing).await.unwrap();
    worker.drained().await;
    assert_eq!(worker.stop().await.done, 1);
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_not_made_up() {
    let Store { mill, folder: _folder } = Store::new().await;
    let said = ["nowhere", "does not exist", "create it first"];
    refused(mill.push("nowhere", "x").await, ErrorKind::NotFound, &said);
    refused(mill.worker("nowhere").start(nothing).await, ErrorKind::NotFound, &said);
    refused(mill.worker_for(["jobs", "nowhere"]).start(nothing).await, ErrorKind::NotFound, &said);
    refused(mill.admin().status("nowhere", "default").await, ErrorKind::NotFound, &said);
    refused(mill.admin().delete_topic("nowhere").await, ErrorKind::NotFound, &said);
    assert_eq!(mill.admin().topics().await.unwrap().len(), 1);
    // A deleted topic is gone, also for a client that has used it.
    mill.push("jobs", "x").await.unwrap();
    mill.admin().delete_topic("jobs").await.unwrap();
    refused(mill.push("jobs", "x").await, ErrorKind::NotFound, &["jobs", "create it first"]);
}

#[tokio::test]
async fn a_lane_is_no_topic() {
    let Store { mill, folder: _folder } = Store::new().await;
    mill.worker("jobs").start(nothing).await.unwrap().stop().await;
    for lane in ["jobs@default.retry", "jobs@default.dead"] {
        let said = [lane, "is a lane of jobs"];
        refused(mill.create_topic(lane).await, ErrorKind::Invalid, &said);
        refused(mill.push(lane, "x").await, ErrorKind::Invalid, &said);
        refused(mill.worker(lane).start(nothing).await, ErrorKind::Invalid, &said);
        refused(mill.admin().delete_topic(lane).await, ErrorKind::Invalid, &said);
    }
    for broken in ["jobs@default", "jobs@", "jobs@default.done"] {
        refused(mill.push(broken, "x").await, ErrorKind::Invalid, &["a lane is named TOPIC@GROUP.retry"]);
    }
}

#[tokio::test]
async fn broken_names_of_groups_workers_and_namespaces_are_refused() {
    let Store { mill, folder } = Store::new().await;
    let long = "x".repeat(61);
    for (name, said) in [
        ("", "name is empty: use letters"),
        ("a b", "' ' cannot be used: use letters"),
        ("_x", "begins with a sign: use letters"),
        ("a@b", "'@' cannot be used: use letters"),
        (&long, "61 characters, and 60 is the limit: choose a shorter one"),
    ] {
        let start = mill.worker("jobs").group(name).start(nothing).await;
        refused(start, ErrorKind::Invalid, &["group", said]);
        refused(mill.admin().status("jobs", name).await, ErrorKind::Invalid, &["group", said]);
        refused(mill.admin().dead_letters("jobs", name).await, ErrorKind::Invalid, &["group", said]);
        let start = mill.worker("jobs").name(name).start(nothing).await;
        refused(start, ErrorKind::Invalid, &["worker", said]);
    }
    let url = format!("sqlite:{}", folder.path().join("other.db").display());
    let options = Sawmill::options().engine(SqliteEngine).namespace("a b");
    refused(options.open(&url).await, ErrorKind::Invalid, &["namespace", "use letters"]);
    assert!(!folder.path().join("other.db").exists(), "it was refused, and created all the same");
}

#[tokio::test]
async fn shards_have_bounds_and_cannot_be_changed() {
    let Store { mill, folder: _folder } = Store::new().await;
    let spec = |name: &str, shards| TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) };
    for shards in [0, MAX_SHARDS + 1, u16::MAX] {
        let said = [&*format!("cannot have {shards} shards"), "choose from 1 to 1024"];
        refused(mill.create_topic_with(&spec("new", shards)).await, ErrorKind::Invalid, &said);
    }
    let said = ["jobs exists with 16 shards", "use it as it is, or choose another name"];
    refused(mill.create_topic_with(&spec("jobs", 8)).await, ErrorKind::Exists, &said);
    mill.create_topic_with(&spec("jobs", 16)).await.unwrap();
    mill.create_topic_with(&spec("new", MAX_SHARDS)).await.unwrap();
    assert_eq!(mill.admin().topics().await.unwrap().len(), 2);
}

#[tokio::test]
async fn dead_letters_that_are_not_there_are_said_to_be_so() {
    let Store { mill, folder: _folder } = Store::new().await;
    let said = ["no group nobody", "begins with its first worker"];
    refused(mill.admin().dead_letters("jobs", "nobody").await, ErrorKind::NotFound, &said);
    mill.worker("jobs").start(nothing).await.unwrap().stop().await;
    let letters = mill.admin().dead_letters("jobs", "default").await.unwrap();
    let id = MessageId::from_u128(7);
    let said = [&*id.to_string(), "no dead letter"];
    refused(letters.show(id).await, ErrorKind::NotFound, &said);
    refused(letters.retry(DeadLetterSelection::Ids(vec![id])).await, ErrorKind::NotFound, &said);
    refused(letters.drop(DeadLetterSelection::Ids(vec![id])).await, ErrorKind::NotFound, &said);
    assert_eq!(letters.retry(DeadLetterSelection::All).await.unwrap(), 0);
    refused("7".parse::<MessageId>(), ErrorKind::Invalid, &["26 letters and digits"]);
}
