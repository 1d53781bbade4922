//! Finds problems of a ring that works all the same, for `sawmill doctor`.

use sawmill_engine::Result;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Finding;

use crate::store::{Cassandra, read};

impl Cassandra {
    pub(crate) async fn ring_findings(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        // ScyllaDB has no such table; this check is then omitted.
        let setting = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'";
        let settings =
            self.link().query(setting).await.and_then(crate::connection::link::Answer::rows::<(String,)>);
        let is_periodic = settings.is_ok_and(|rows| rows.iter().any(|(value,)| value == "periodic"));
        if is_periodic && !self.link().replicated {
            findings.push(Finding::new(
                "durability",
                "the node acknowledges writes before they are on disk (commitlog_sync: periodic), and no other node has a copy: \
                 a crash loses the last seconds",
                "keep three copies (ALTER KEYSPACE), or set commitlog_sync: group or batch",
            ));
        }
        let before = self.env().wall();
        let clock = self.link().query("SELECT toUnixTimestamp(now()) FROM system.local").await;
        let clock: Vec<(i64,)> = read(clock.and_then(crate::connection::link::Answer::rows))?;
        let between = (before, self.env().wall());
        let clock =
            clock.first().and_then(|(millis,)| u64::try_from(*millis).ok()).map(Timestamp::from_millis);
        findings.extend(clock.and_then(|clock| Finding::of_clock("the node that answered", clock, between)));
        Ok(findings)
    }
}
