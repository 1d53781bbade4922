//! Single pushes: twenty tasks push one message at a time and wait for each answer. Compared with the engine
//! alone, one transaction per row.

use sawmill::engine::runtime::Env;
use tokio::task::JoinSet;

use crate::Failure;
use crate::PAYLOAD;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::{Subject, seconds};

/// Tasks that push, and connections that insert where the engine supports several.
pub(crate) const TASKS: usize = 20;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    let (mut alone, mut ours) = (0f64, 0f64);
    for round in 1..=settings.rounds {
        let rows = settings.singles / 4;
        let mut raw = subject.raw().await?;
        let (took, ()) = seconds(raw.insert_singly(rows)).await?;
        raw.remove().await?;
        alone = alone.max(rows as f64 / took);
        let took = push(subject, &subject.store(&format!("single{round}")), settings.singles).await?;
        ours = ours.max(settings.singles as f64 / took);
        progress(&format!(
            "single pushes, round {round} of {}: {ours:.0}/s, {} alone {alone:.0}/s",
            settings.rounds,
            subject.name()
        ));
    }
    let what = format!("{TASKS} tasks that push one by one");
    let figure = Figure::new("single", what, "/s", ours).base(alone);
    report.add(figure.wanted(Wanted::Times(subject.goals().single)));
    Ok(())
}

async fn push(subject: &dyn Subject, store: &str, pushes: usize) -> Result<f64, Failure> {
    let opened = subject.open(store, Env::system()).await?;
    opened.mill().create_topic("bench").await?;
    let producer = match subject.gathers_pushes() {
        true => None,
        false => Some(opened.mill().producer("bench").await?),
    };
    let pushing = async {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (mill, producer) = (opened.mill().clone(), producer.clone());
            tasks.spawn(async move {
                for _ in 0..pushes / TASKS {
                    match &producer {
                        Some(producer) => producer.push(&PAYLOAD[..]).await?,
                        None => mill.push("bench", &PAYLOAD[..]).await?,
                    };
                }
                Ok::<(), sawmill::Error>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok::<(), Failure>(())
    };
    let (took, ()) = seconds(pushing).await?;
    drop(producer);
    opened.close().await?;
    subject.remove(store).await?;
    Ok(took)
}
