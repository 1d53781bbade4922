//! ZooKeeper keeps no messages, so only ledger work is measured: sequential commits as a worker sends them,
//! reads of an entry, and commits of sixteen shards at once. Commits are compared with the driver alone.

use std::time::Duration;

use futures_util::future::try_join_all;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Commit, EntryKey, Ledger, Namespace, Version, Write};
use sawmill_zookeeper::Zookeeper;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::Failure;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::{SHARDS, percentile, url};

/// The size of a shard's cursor with some claims.
const VALUE: [u8; 400] = [b'x'; 400];
/// The goal for one commit, in milliseconds.
const WANTED_P50: f64 = 2.0;
const PAUSE: Duration = Duration::from_millis(2);
/// Commits and reads per second of the latency setting.
const PER_SECOND: u64 = 100;

pub(crate) async fn measure(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let (url, env) = (url("SAWMILL_TEST_ZOOKEEPER")?, Env::system());
    let namespace: Namespace = format!("bench-{:016x}", env.rng().next_u64()).parse()?;
    let ledger = Zookeeper::open(&url.parse()?, &namespace).await?;
    let mut raw = Raw::new(&url, &namespace).await?;
    let count = (settings.latency_seconds * PER_SECOND).max(100);
    progress(&format!("{count} commits, one at a time"));

    let key = EntryKey::raw("shards/bench/0000");
    let mut version = commit(&ledger, &key, None).await?;
    let (mut bases, mut commits, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        env.sleep(PAUSE).await;
        let began = env.now();
        raw.set(0).await?;
        bases.push(env.now().since(began).as_secs_f64() * 1e3);
        let began = env.now();
        version = commit(&ledger, &key, Some(version)).await?;
        commits.push(env.now().since(began).as_secs_f64() * 1e3);
        let began = env.now();
        ledger.get(&key).await?;
        reads.push(env.now().since(began).as_secs_f64() * 1e3);
    }
    for times in [&mut bases, &mut commits, &mut reads] {
        times.sort_by(f64::total_cmp);
    }
    let at = |key, what, times: &[f64], part| Figure::new(key, what, "ms", percentile(times, part));
    let p50 = at("commit_p50", "one commit, p50; base: the driver alone", &commits, 0.5);
    report.add(p50.base(percentile(&bases, 0.5)).wanted(Wanted::AtMost(WANTED_P50)));
    let p99 = at("commit_p99", "one commit, p99; base: the driver alone", &commits, 0.99);
    report.add(p99.base(percentile(&bases, 0.99)));
    report.add(at("get_p50", "one entry read, with what others wrote, p50", &reads, 0.5));
    report.add(at("get_p99", "one entry read, with what others wrote, p99", &reads, 0.99));

    progress("commits of sixteen shards at once");
    let each = count / 4;
    let began = env.now();
    try_join_all((0..SHARDS).map(|shard| one_shard(&ledger, shard, each))).await?;
    let ours = (each * SHARDS as u64) as f64 / env.now().since(began).as_secs_f64();
    let began = env.now();
    try_join_all((0..SHARDS).map(|shard| raw.many(shard, each))).await?;
    let base = (each * SHARDS as u64) as f64 / env.now().since(began).as_secs_f64();
    report.add(
        Figure::new("commits", "commits of 16 shards at once; base: the driver alone", "/s", ours).base(base),
    );
    Ok(())
}

async fn commit(ledger: &Zookeeper, key: &EntryKey, expect: Option<Version>) -> Result<Version, Failure> {
    let write = Write { key: key.clone(), expect, value: Some(VALUE.to_vec().into()) };
    match ledger.commit(write).await? {
        Commit::Done(version) => Ok(version),
        other => Err(format!("a commit of {key} was answered {other:?}").into()),
    }
}

async fn one_shard(ledger: &Zookeeper, shard: usize, count: u64) -> Result<(), Failure> {
    let key = EntryKey::raw(format!("shards/crowd/{shard:04}"));
    let mut version = None;
    for _ in 0..count {
        version = Some(commit(ledger, &key, version).await?);
    }
    Ok(())
}

/// Nodes written by the driver alone.
struct Raw {
    client: Client,
    nodes: Vec<(String, i32)>,
}

impl Raw {
    async fn new(url: &str, namespace: &Namespace) -> Result<Self, Failure> {
        let hosts = url.trim_start_matches("zookeeper://");
        let client = Client::connect(hosts.split(['/', '?']).next().unwrap_or(hosts)).await?;
        let folder = format!("/{}-raw", namespace.as_str());
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(&folder, b"", &options).await?;
        let mut nodes = Vec::new();
        for shard in 0..SHARDS {
            let path = format!("{folder}/{shard:04}");
            client.create(&path, &VALUE, &options).await?;
            nodes.push((path, 0));
        }
        Ok(Self { client, nodes })
    }

    async fn set(&mut self, node: usize) -> Result<(), Failure> {
        let (path, version) = &mut self.nodes[node];
        *version = self.client.set_data(path, &VALUE, Some(*version)).await?.version;
        Ok(())
    }

    async fn many(&self, node: usize, count: u64) -> Result<(), Failure> {
        let (path, mut version) = self.nodes[node].clone();
        for _ in 0..count {
            version = self.client.set_data(&path, &VALUE, Some(version)).await?.version;
        }
        Ok(())
    }
}
