//! Helpers to run a behaviour that does not depend on the store on every available engine.

use sawmill::Sawmill;
use sawmill::engine::model::Topic;

use super::faulty_store::FaultyStore;
use super::place::{Seams, Subject};

/// Runs a test in memory and on a real engine, each time on a new store with the topic `orders`.
pub(crate) async fn on_each(on: Subject, test: impl AsyncFn(Sawmill)) {
    let place = on.place();
    let memory = Sawmill::open("memory:").await.unwrap();
    for (engine, mill) in [("memory", memory), (on.engine, place.mill().await)] {
        println!("on {engine}:");
        mill.create_topic("orders").await.unwrap();
        test(mill).await;
    }
}

/// The same in a [`FaultyStore`], for tests that must know when their worker has refreshed its view of the
/// ledger.
pub(crate) async fn on_each_tapped(on: Subject, test: impl AsyncFn(FaultyStore, Topic)) {
    let place = on.place();
    for (engine, faulty) in [("memory", FaultyStore::new(Seams::memory())), (on.engine, place.faulty())] {
        println!("on {engine}:");
        let topic = faulty.mill().create_topic("orders").await.unwrap();
        test(faulty, topic).await;
    }
}

/// Returns the reasons of all dead letters of the topic `orders`, sorted.
pub(crate) async fn dead_reasons(mill: &Sawmill) -> Vec<String> {
    let letters = mill.admin().dead_letters("orders", "default").await.unwrap().list(100).await.unwrap();
    let mut reasons: Vec<String> = letters.into_iter().map(|letter| letter.reason().to_owned()).collect();
    reasons.sort();
    reasons
}
