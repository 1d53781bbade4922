//! The board: where every group stands, looked at once for all who ask, with rates and a short history.
//!
//! Nobody looks while nobody asks. Two looks that are not too far apart give rates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sawmill::env::Env;
use sawmill::{GroupReport, Look, Sawmill};
use serde::Serialize;
use tokio::sync::Mutex;

/// How old what is shown may be.
const FRESH: Duration = Duration::from_millis(900);
/// How far apart two looks may be to tell a rate.
const FAR_APART: Duration = Duration::from_secs(60);
/// How many points a history has.
const POINTS: usize = 60;

pub(crate) struct Board {
    mill: Sawmill,
    env: Env,
    looks: Mutex<Looks>,
    /// What is known is known to be wrong.
    stale: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Looks {
    now: Vec<Look>,
    at: Option<sawmill::clock::Moment>,
    reports: Vec<GroupReport>,
    histories: BTreeMap<(String, Option<String>), VecDeque<Point>>,
}

/// One point of a history.
#[derive(Debug, Clone, Copy, Serialize)]
struct Point {
    waiting: u64,
    finished_per_second: f64,
}

/// A report, and what went before.
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

impl Board {
    pub(crate) fn new(mill: Sawmill, env: Env) -> Self {
        Self { mill, env, looks: Mutex::default(), stale: false.into() }
    }

    /// Something was changed: the next who asks wants to see it.
    pub(crate) fn forget(&self) {
        self.stale.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    /// Where the groups of these topics stand.
    pub(crate) async fn reports(&self, wanted: impl Fn(&str) -> bool) -> sawmill::Result<Vec<Row>> {
        let mut looks = self.looks.lock().await;
        let age = looks.at.map(|at| self.env.now().since(at));
        let is_stale = self.stale.swap(false, std::sync::atomic::Ordering::SeqCst);
        if is_stale || age.is_none_or(|age| age > FRESH) {
            let now = self.mill.look(None).await?;
            looks.see(now, age, self.env.now());
        }
        let rows = looks.reports.iter().filter(|report| wanted(&report.topic)).map(|report| {
            let history = looks.histories.get(&(report.topic.clone(), report.group.clone()));
            let history = history.map(|points| points.iter().copied().collect()).unwrap_or_default();
            Row { report: report.clone(), history }
        });
        Ok(rows.collect())
    }
}

impl Looks {
    fn see(&mut self, now: Vec<Look>, age: Option<Duration>, at: sawmill::clock::Moment) {
        let is_near = age.is_some_and(|age| age <= FAR_APART);
        let before: &[Look] = if is_near { &self.now } else { &[] };
        self.reports = Look::reports(&now, before);
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
            if points.len() > POINTS {
                points.pop_front();
            }
            self.histories.insert(key, points);
        }
        (self.now, self.at) = (now, Some(at));
    }
}
