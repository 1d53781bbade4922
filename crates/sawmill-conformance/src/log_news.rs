//! Checks of a log: notifications arrive, as far as the engine says that they reach.
//!
//! A single notification may be lost, so each check makes several changes and expects one notification.

use std::sync::Arc;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, Notifications};

use crate::sample::{now, record, record_due, seconds_after};
use crate::{Place, Reach};

/// A change that sends notifications.
enum Change {
    Append,
    KeepAside,
    Promote,
}

async fn assert_notified(
    place: &Place,
    log: &Arc<dyn Log>,
    topic: &Topic,
    mut notifications: Notifications,
    change: Change,
) {
    const TRIES: u64 = 4;
    let due = |n| seconds_after(now(), 600 + n);
    for n in 0..TRIES {
        let batch = match change {
            Change::Append => vec![record(0, "m")],
            Change::KeepAside | Change::Promote => vec![record_due(0, "m", due(n))],
        };
        log.append(topic, now(), batch).await.expect("a message is appended");
        if matches!(change, Change::Promote) {
            // Skip the notifications of the message being kept aside.
            for _ in 0..3 {
                place.env().within(place.patience() / 20, notifications.next()).await;
            }
            let promoted = log.promote(topic, due(1000), 10).await.expect("what is due is promoted");
            assert_eq!(promoted.moved, 1);
        }
        if place.env().within(place.patience() / TRIES as u32, notifications.next()).await.is_some() {
            return;
        }
    }
    panic!("test timed out: a notification arrives within {:?}", place.patience());
}

/// A notification arrives when a message was appended.
pub async fn news_comes_after_an_append(place: Place) {
    if place.hints_reach("news_comes_after_an_append", Reach::SameHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert_notified(&place, &log, &topic, log.message_notifications(&topic), Change::Append).await;
    }
}

/// A notification arrives when a message was kept aside.
pub async fn news_comes_when_something_is_kept_aside(place: Place) {
    if place.hints_reach("news_comes_when_something_is_kept_aside", Reach::SameHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert_notified(&place, &log, &topic, log.message_notifications(&topic), Change::KeepAside).await;
    }
}

/// A notification arrives when a message was promoted.
pub async fn news_comes_after_a_promotion(place: Place) {
    if place.hints_reach("news_comes_after_a_promotion", Reach::SameHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        assert_notified(&place, &log, &topic, log.message_notifications(&topic), Change::Promote).await;
    }
}

/// A notification arrives when a message was appended through another handle.
pub async fn news_comes_from_another_handle(place: Place) {
    if place.hints_reach("news_comes_from_another_handle", Reach::EveryHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        let listener = place.log().await;
        assert_notified(&place, &log, &topic, listener.message_notifications(&topic), Change::Append).await;
    }
}

/// A notification arrives when a message was promoted through another handle.
pub async fn news_of_a_promotion_comes_from_another_handle(place: Place) {
    if place.hints_reach("news_of_a_promotion_comes_from_another_handle", Reach::EveryHandle) {
        let (log, topic) = place.log_and_topic("orders", 1).await;
        let listener = place.log().await;
        assert_notified(&place, &log, &topic, listener.message_notifications(&topic), Change::Promote).await;
    }
}
