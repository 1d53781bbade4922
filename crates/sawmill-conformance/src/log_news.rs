//! Checks of a log: hints come, as far as the engine says that they reach.
//!
//! A single hint may be lost, so each check makes several changes and wants one hint.

use std::sync::Arc;

use sawmill::log::{Hints, Log};
use sawmill::topic::Topic;

use crate::sample::{now, record, record_due, seconds_after};
use crate::{Place, Reach};

/// What may make news.
enum Change {
    Append,
    KeepAside,
    Promote,
}

async fn assert_news(place: &Place, log: &Arc<dyn Log>, topic: &Topic, mut hints: Hints, change: Change) {
    const TRIES: u64 = 4;
    let due = |n| seconds_after(now(), 600 + n);
    for n in 0..TRIES {
        let batch = match change {
            Change::Append => vec![record(0, "m")],
            Change::KeepAside | Change::Promote => vec![record_due(0, "m", due(n))],
        };
        log.append(topic, now(), batch).await.expect("a message is appended");
        if matches!(change, Change::Promote) {
            // The hint that something was kept aside is not the one that is waited for.
            for _ in 0..3 {
                place.env().within(place.patience() / 20, hints.next()).await;
            }
            let promoted = log.promote(topic, due(1000), 10).await.expect("what is due is promoted");
            assert_eq!(promoted.moved, 1);
        }
        if place.env().within(place.patience() / TRIES as u32, hints.next()).await.is_some() {
            return;
        }
    }
    panic!("test timed out: a hint comes within {:?}", place.patience());
}

/// A hint comes when something was appended.
pub async fn news_comes_after_an_append(place: Place) {
    if place.hints_reach("news_comes_after_an_append", Reach::SameHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert_news(&place, &log, &topic, log.news(&topic), Change::Append).await;
    }
}

/// A hint comes when something was kept aside.
pub async fn news_comes_when_something_is_kept_aside(place: Place) {
    if place.hints_reach("news_comes_when_something_is_kept_aside", Reach::SameHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert_news(&place, &log, &topic, log.news(&topic), Change::KeepAside).await;
    }
}

/// A hint comes when something was promoted.
pub async fn news_comes_after_a_promotion(place: Place) {
    if place.hints_reach("news_comes_after_a_promotion", Reach::SameHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert_news(&place, &log, &topic, log.news(&topic), Change::Promote).await;
    }
}

/// A hint comes when something was appended through another handle.
pub async fn news_comes_from_another_handle(place: Place) {
    if place.hints_reach("news_comes_from_another_handle", Reach::EveryHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        let listener = place.log().await;
        assert_news(&place, &log, &topic, listener.news(&topic), Change::Append).await;
    }
}

/// A hint comes when something was promoted through another handle.
pub async fn news_of_a_promotion_comes_from_another_handle(place: Place) {
    if place.hints_reach("news_of_a_promotion_comes_from_another_handle", Reach::EveryHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        let listener = place.log().await;
        assert_news(&place, &log, &topic, listener.news(&topic), Change::Promote).await;
    }
}
