//! Schedules: prints the next ticks of a cron expression in a time zone, and waits for two ticks of a
//! schedule that ticks every second.
//!
//! `cargo run -p sawmill --features sqlite --example cron`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sawmill::{Context, Missed, Schedule, State, Timestamp};
use tokio::sync::Semaphore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // At half past two each night. In Berlin that time does not exist on the day when daylight saving time
    // begins.
    let nightly = Schedule::cron("nightly", "30 2 * * *", "Europe/Berlin")?.message("all customers");
    let mut tick = Timestamp::from_millis(1_774_566_000_000);
    let mut shown = Vec::new();
    for _ in 0..3 {
        tick = nightly.next(tick).ok_or("a cron expression goes on for ever")?;
        let time = jiff::Timestamp::from_millisecond(tick.as_millis().try_into()?)?.in_tz("Europe/Berlin")?;
        shown.push(time.strftime("%F %H:%M").to_string());
    }
    println!("{} ({}): {}", nightly.name(), nightly.timing(), shown.join(", "));
    assert_eq!(shown, ["2026-03-27 02:30", "2026-03-28 02:30", "2026-03-29 03:00"]);

    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("reports").await?;
    mill.schedule("reports", nightly).await?;
    let live = Schedule::every("live", Duration::from_secs(1))?.message("a tick").missed(Missed::Skip);
    mill.schedule("reports", live).await?;

    let ticks = Arc::new(Semaphore::new(0));
    let worker = mill.worker("reports").state(ticks.clone()).start(report).await?;
    ticks.acquire_many(2).await?.forget();
    worker.stop().await;

    let names: Vec<String> = mill
        .schedules("reports")
        .await?
        .iter()
        .map(|scheduled| scheduled.schedule.name().to_owned())
        .collect();
    assert_eq!(names, ["live", "nightly"]);
    assert!(mill.unschedule("reports", "live").await?, "it was there to be removed");
    Ok(())
}

async fn report(context: Context, ticks: State<Arc<Semaphore>>) -> Result<(), String> {
    let tick = context.tick().ok_or("this was not pushed by a schedule")?;
    println!("{} for {tick}", String::from_utf8_lossy(context.payload()));
    if tick.as_millis() % 1000 != 0 {
        return Err(format!("{tick} is not a full second"));
    }
    ticks.add_permits(1);
    Ok(())
}
