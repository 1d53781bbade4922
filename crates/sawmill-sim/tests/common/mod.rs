//! Shared by the tests of the simulation: a small world with short helpers.
#![allow(dead_code)] // Each test file uses its own part.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sawmill::engine::model::{Headers, Topic};
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{EntryKey, Log, Position, ReadRequest, Record, Version, Write};
use sawmill::{Message, MessageId, Timestamp, TopicSpec};
use sawmill_sim::{
    Control, Ended, Faults, Limits, NodeId, Settings, Sim, SimLedger, SimLog, SimStore, Tally,
};

/// The world that a test's controlling future works with.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) store: SimStore,
    pub(crate) env: Env,
    pub(crate) node: NodeId,
    pub(crate) ledger: Arc<SimLedger>,
    pub(crate) log: Arc<SimLog>,
}

impl World {
    pub(crate) fn new(sim: &Sim, settings: Settings, faults: Faults) -> Self {
        let control = sim.control();
        let store = SimStore::new(&control, settings, faults);
        let node = control.add_node("worker");
        Self {
            env: control.env(NodeId::WORLD),
            node,
            ledger: Arc::new(store.ledger(node)),
            log: Arc::new(store.log(node)),
            store,
            control,
        }
    }

    pub(crate) async fn sleep(&self, millis: u64) {
        self.env.sleep(Duration::from_millis(millis)).await;
    }

    /// Creates a topic with two shards.
    pub(crate) async fn topic(&self) -> Topic {
        let spec = TopicSpec { shards: 2, ..TopicSpec::new("t".parse().unwrap()) };
        self.store.log(NodeId::WORLD).create_topic(&spec).await.unwrap()
    }

    /// Appends messages with these ids to shard 0, through the log of this world's node.
    pub(crate) async fn append(&self, topic: &Topic, ids: &[u128]) -> sawmill::Result<()> {
        self.log.append(topic, self.env.wall(), ids.iter().map(|id| record(0, *id)).collect()).await
    }

    /// Returns the ids that are readable in shard 0 now.
    pub(crate) fn readable(&self, topic: &Topic) -> Vec<u128> {
        let messages = self.store.messages(topic).into_iter();
        messages.filter(|(shard, _, _)| *shard == 0).map(|(_, _, message)| message.id.as_u128()).collect()
    }
}

/// Runs a test in its own world. Returns its result and the faults that took effect.
pub(crate) fn in_world<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    seed: u64,
    settings: Settings,
    faults: Faults,
    test: impl FnOnce(World) -> F,
) -> (T, Tally) {
    let sim = Sim::new(seed);
    let world = World::new(&sim, settings, faults);
    match sim.run(Limits::default(), test(world)) {
        Ended::Finished(result) => (result, sim.tally()),
        Ended::OutOfTime | Ended::OutOfSteps | Ended::Stuck => panic!("the test did not finish"),
    }
}

/// Creates a record for which the log must detect duplicates.
pub(crate) fn record(shard: u16, id: u128) -> Record {
    let message = Message {
        id: MessageId::from_u128(id),
        key: None,
        payload: "x".into(),
        headers: Headers::default(),
        due: None,
        created: Timestamp::from_millis(1),
    };
    Record { repeatable: true, ..Record::once(shard, message) }
}

pub(crate) fn key() -> EntryKey {
    EntryKey::raw("members/g/w")
}

/// Creates a write to the tests' one entry.
pub(crate) fn write(expect: Option<u64>, value: &'static str) -> Write {
    Write { key: key(), expect: expect.map(Version), value: Some(value.into()) }
}

/// Follows shard 0 by position until `count` different messages were read or `patience` is over. Returns the
/// ids as read.
pub(crate) async fn follow(world: World, topic: Topic, count: usize, patience: Duration) -> Vec<u128> {
    let log = world.store.log(NodeId::WORLD);
    let (mut after, mut read, began) = (Position::default(), Vec::new(), world.control.now());
    while BTreeSet::from_iter(&read).len() < count && world.control.now() - began < patience {
        let blocks =
            log.read(&topic, &[ReadRequest { shard: 0, after: after.clone(), limit: 3 }]).await.unwrap();
        read.extend(blocks[0].messages.iter().map(|message| message.id.as_u128()));
        after = blocks[0].end.clone();
        if blocks[0].messages.is_empty() {
            world.sleep(5).await;
        }
    }
    read
}
