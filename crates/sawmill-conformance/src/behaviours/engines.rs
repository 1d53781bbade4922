//! Behaviours that do not depend on the store are shown on every engine that is at hand.

use sawmill::Sawmill;

use super::place::Subject;

/// Runs a test in memory and on a real engine, each time on a new store that has the topic `orders`.
pub(crate) async fn on_each(on: Subject, test: impl AsyncFn(Sawmill)) {
    let place = on.place();
    let memory = Sawmill::open("memory:").await.unwrap();
    for (engine, mill) in [("memory", memory), (on.engine, place.mill().await)] {
        println!("on {engine}:");
        mill.create_topic("orders").await.unwrap();
        test(mill).await;
    }
}

/// The reasons of all dead letters of the topic `orders`, in alphabetical order.
pub(crate) async fn dead_reasons(mill: &Sawmill) -> Vec<String> {
    let letters = mill.dead_letters("orders", "default").await.unwrap().list(100).await.unwrap();
    let mut reasons: Vec<String> = letters.into_iter().map(|letter| letter.reason().to_owned()).collect();
    reasons.sort();
    reasons
}
