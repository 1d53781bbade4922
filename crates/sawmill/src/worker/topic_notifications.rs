//! Notifications of several topics, each with the topic that it is about.

use futures_util::FutureExt;
use futures_util::future::select_all;
use sawmill_engine::model::Topic;
use sawmill_engine::storage::{Log, Notifications};

/// The notifications of several topics, by the topic's uid.
pub(super) struct TopicNotifications(Vec<(String, Notifications)>);

impl TopicNotifications {
    pub(super) fn of<'t>(log: &dyn Log, topics: impl Iterator<Item = &'t Topic>) -> Self {
        Self(topics.map(|topic| (topic.uid.clone(), log.message_notifications(topic))).collect())
    }

    /// Completes when a notification has come since the last call. Returns the uids of all topics that had
    /// one.
    pub(super) async fn next(&mut self) -> Vec<String> {
        if self.0.is_empty() {
            std::future::pending::<()>().await;
        }
        let ((), first, _) = select_all(self.0.iter_mut().map(|(_, each)| Box::pin(each.next()))).await;
        let notified =
            |index: usize, each: &mut Notifications| index == first || each.next().now_or_never().is_some();
        let topics = self.0.iter_mut().enumerate();
        topics.filter_map(|(index, (uid, each))| notified(index, each).then(|| uid.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn news_say_of_which_topics_they_are() {
        let notifiers: Vec<watch::Sender<()>> = (0..3).map(|_| watch::Sender::new(())).collect();
        let topic = |at: usize| (format!("t{at}"), Notifications::new(notifiers[at].subscribe()));
        let mut topics = TopicNotifications((0..3).map(topic).collect());
        assert!(topics.next().now_or_never().is_none());
        notifiers[2].send_replace(());
        notifiers[0].send_replace(());
        notifiers[0].send_replace(());
        assert_eq!(topics.next().await, ["t0", "t2"]);
        assert!(topics.next().now_or_never().is_none());
        notifiers[1].send_replace(());
        assert_eq!(topics.next().await, ["t1"]);
        assert!(TopicNotifications(Vec::new()).next().now_or_never().is_none());
    }
}
