//! News of several topics, told apart.

use futures_util::FutureExt;
use futures_util::future::select_all;

use crate::log::{Hints, Log};
use crate::topic::Topic;

/// Hints of topics, each with the topic's uid.
pub(super) struct News(Vec<(String, Hints)>);

impl News {
    pub(super) fn of<'t>(log: &dyn Log, topics: impl Iterator<Item = &'t Topic>) -> Self {
        Self(topics.map(|topic| (topic.uid.clone(), log.news(topic))).collect())
    }

    /// Completes when there was a hint since the last call, with the uids of all topics of which there was one.
    pub(super) async fn next(&mut self) -> Vec<String> {
        if self.0.is_empty() {
            std::future::pending::<()>().await;
        }
        let ((), first, _) = select_all(self.0.iter_mut().map(|(_, hints)| Box::pin(hints.next()))).await;
        let heard = |index: usize, hints: &mut Hints| index == first || hints.next().now_or_never().is_some();
        let topics = self.0.iter_mut().enumerate();
        topics.filter_map(|(index, (uid, hints))| heard(index, hints).then(|| uid.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn news_say_of_which_topics_they_are() {
        let bells: Vec<watch::Sender<()>> = (0..3).map(|_| watch::Sender::new(())).collect();
        let hints = |at: usize| (format!("t{at}"), Hints::new(bells[at].subscribe()));
        let mut news = News((0..3).map(hints).collect());
        assert!(news.next().now_or_never().is_none());
        bells[2].send_replace(());
        bells[0].send_replace(());
        bells[0].send_replace(());
        assert_eq!(news.next().await, ["t0", "t2"]);
        assert!(news.next().now_or_never().is_none());
        bells[1].send_replace(());
        assert_eq!(news.next().await, ["t1"]);
        assert!(News(Vec::new()).next().now_or_never().is_none());
    }
}
