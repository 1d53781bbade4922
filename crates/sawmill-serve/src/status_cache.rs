//! Caches the status of all groups, with rates and a short history. All callers share one snapshot of the
//! store.
//!
//! The store is read only when a caller asks. Two snapshots that are not too far apart give a rate.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sawmill::Sawmill;
use sawmill::admin::{GroupReport, GroupSnapshot};
use sawmill::engine::runtime::Env;
use serde::Serialize;
use tokio::sync::Mutex;

/// The maximum age of a snapshot that is returned without reading the store.
const MAX_AGE: Duration = Duration::from_millis(900);
/// The maximum time between two snapshots that a rate is computed from.
const MAX_RATE_INTERVAL: Duration = Duration::from_secs(60);
/// The number of points in a history.
const HISTORY_POINTS: usize = 60;

pub(crate) struct StatusCache {
    mill: Sawmill,
    env: Env,
    snapshots: Mutex<Snapshots>,
    /// Set after a change, so that the next call reads the store.
    stale: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Snapshots {
    now: Vec<GroupSnapshot>,
    at: Option<sawmill::engine::runtime::Moment>,
    reports: Vec<GroupReport>,
    histories: BTreeMap<(String, Option<String>), VecDeque<Point>>,
}

/// One point of a history.
#[derive(Debug, Clone, Copy, Serialize)]
struct Point {
    waiting: u64,
    finished_per_second: f64,
}

/// A group's report and its history.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) report: GroupReport,
    history: Vec<Point>,
}

impl Row {
    pub(crate) fn is_of(&self, group: &str) -> bool {
        self.report.group.as_deref() == Some(group)
    }
}

impl StatusCache {
    pub(crate) fn new(mill: Sawmill, env: Env) -> Self {
        Self { mill, env, snapshots: Mutex::default(), stale: false.into() }
    }

    /// Makes the next call read the store, because something was changed.
    pub(crate) fn mark_stale(&self) {
        self.stale.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    /// Returns the status of the groups of these topics.
    pub(crate) async fn reports(&self, wanted: impl Fn(&str) -> bool) -> sawmill::Result<Vec<Row>> {
        let mut snapshots = self.snapshots.lock().await;
        let age = snapshots.at.map(|at| self.env.now().since(at));
        let is_stale = self.stale.swap(false, std::sync::atomic::Ordering::SeqCst);
        if is_stale || age.is_none_or(|age| age > MAX_AGE) {
            let now = self.mill.admin().snapshot(None).await?;
            snapshots.record(now, age, self.env.now());
        }
        let rows = snapshots.reports.iter().filter(|report| wanted(&report.topic)).map(|report| {
            let history = snapshots.histories.get(&(report.topic.clone(), report.group.clone()));
            let history = history.map(|points| points.iter().copied().collect()).unwrap_or_default();
            Row { report: report.clone(), history }
        });
        Ok(rows.collect())
    }
}

impl Snapshots {
    fn record(
        &mut self,
        now: Vec<GroupSnapshot>,
        age: Option<Duration>,
        at: sawmill::engine::runtime::Moment,
    ) {
        let is_near = age.is_some_and(|age| age <= MAX_RATE_INTERVAL);
        let before: &[GroupSnapshot] = if is_near { &self.now } else { &[] };
        self.reports = GroupSnapshot::reports(&now, before);
        if !is_near {
            self.histories.clear();
        }
        let mut histories = std::mem::take(&mut self.histories);
        for report in &self.reports {
            let key = (report.topic.clone(), report.group.clone());
            let mut points = histories.remove(&key).unwrap_or_default();
            if let Some(rate) = report.finished_per_second {
                points.push_back(Point { waiting: report.waiting, finished_per_second: rate });
            }
            if points.len() > HISTORY_POINTS {
                points.pop_front();
            }
            self.histories.insert(key, points);
        }
        (self.now, self.at) = (now, Some(at));
    }
}
