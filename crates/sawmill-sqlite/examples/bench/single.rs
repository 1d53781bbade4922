//! Single pushes: twenty tasks that push one message at a time and wait for the answer, against raw SQLite with one
//! transaction per row.

use std::path::Path;

use sawmill::env::Env;
use tokio::task::JoinSet;

use crate::raw::Raw;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::{Failure, PAYLOAD, url};

const TASKS: usize = 20;

pub(crate) fn measure(
    runtime: &tokio::runtime::Runtime,
    settings: &Settings,
    folder: &Path,
    report: &mut Report,
) -> Result<(), Failure> {
    let (mut raw, mut ours) = (0f64, 0f64);
    for round in 1..=settings.rounds {
        let rows = settings.singles / 4;
        let seconds = Raw::create(&folder.join(format!("raw-{round}.db")))?.insert_singly(rows)?;
        raw = raw.max(rows as f64 / seconds);
        let seconds =
            runtime.block_on(push(&folder.join(format!("sawmill-{round}.db")), settings.singles))?;
        ours = ours.max(settings.singles as f64 / seconds);
        progress(&format!(
            "single pushes, round {round} of {}: {ours:.0}/s, raw {raw:.0}/s",
            settings.rounds
        ));
    }
    let what = format!("{TASKS} tasks that push one by one");
    report.add(Figure::new("single", what, "/s", ours).base(raw).wanted(Wanted::Times(5.0)));
    Ok(())
}

async fn push(path: &Path, pushes: usize) -> Result<f64, Failure> {
    let env = Env::system();
    let mill = sawmill_sqlite::open(&url(path)).await?;
    mill.create_topic("bench").await?;
    let began = env.now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mill = mill.clone();
        tasks.spawn(async move {
            for _ in 0..pushes / TASKS {
                mill.push("bench", &PAYLOAD[..]).await?;
            }
            Ok::<(), sawmill::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(env.now().since(began).as_secs_f64())
}
