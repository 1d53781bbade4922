//! The claims of a killed at-most-once worker: with a journal, its next incarnation runs the messages that
//! were not started.

use std::time::Duration;

use crate::behaviours::Subject;
use crate::history::{Event, History, Recorded};
use sawmill::admin::DeadLetter;
use sawmill::engine::runtime::Env;
use sawmill::{Delivery, MessageId, Sawmill};

use super::job::{GROUP, Job, TOPIC};
use super::parent::{ChildProcesses, play, soon};
use super::record::assert_none;

const MESSAGES: usize = 600;
const SLOTS: usize = 30;
/// A process that has claimed nothing for this long claims nothing more.
const QUIET: Duration = Duration::from_secs(1);

pub fn g16_a_killed_process_that_is_started_again_runs_what_it_had_claimed_and_not_started(on: Subject) {
    play(async {
        // The TTL is too long to wait for.
        let (mut processes, mill, job, claimed) = killed(on, true, Duration::from_secs(600)).await;
        processes.start(&Job { stuck: None, ..job });
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64 - 1, 1), "{status:?}");
        processes.stop().await;
        let letters = lost(&mill).await;
        assert!(letters[0].reason().starts_with("lost: its worker died while it ran"), "{:?}", letters[0]);
        assert_eq!(letters[0].message.payload, "message 100");
        let history = processes.history();
        assert_none("started twice", &history.check_at_most_once());
        assert_eq!(started(&history).len(), MESSAGES, "all were started, the lost one too");
        eprintln!("of {claimed} that were claimed, all but the one that ran were run by the next life");
    });
}

pub fn g16_without_a_journal_a_killed_process_loses_all_it_had_claimed(on: Subject) {
    play(async {
        let (mut processes, mill, job, claimed) = killed(on, false, Duration::from_secs(2)).await;
        processes.start(&Job { stuck: None, ..job });
        let status = processes.drained(&mill).await;
        assert_eq!((status.done, status.dead), (MESSAGES as u64 - claimed, claimed), "{status:?}");
        processes.stop().await;
        assert!(lost(&mill).await.iter().all(|letter| letter.reason().starts_with("lost: its worker died")));
        assert_none("started twice", &processes.history().check_at_most_once());
    });
}

/// Kills a process that is stuck on a message and has claimed many more behind it. Returns how many were
/// claimed and not done.
async fn killed(on: Subject, journal: bool, ttl: Duration) -> (ChildProcesses, Sawmill, Job, u64) {
    let mut processes = ChildProcesses::new(on);
    let mill = processes.open_with_topic(4).await;
    // All have one key: they wait behind the stuck one, and a worker with idle slots claims more of them.
    processes.push(&mill, MESSAGES, 100, 1).await;
    let job = Job {
        delivery: Delivery::AtMostOnce,
        slots: SLOTS,
        ttl,
        work: Duration::ZERO,
        stuck: Some("message 100".to_owned()),
        journal,
        ..Job::new("w1", processes.folder())
    };
    processes.start(&job);
    let stuck = pushed(&processes.history())[100];
    processes.until("that it is stuck", |history| started(history).contains(&stuck)).await;
    soon("that it has reported what is done, and has more in hand", async {
        let env = Env::system();
        let (mut claimed, mut since) = (0, env.now());
        loop {
            let status = mill.admin().status(TOPIC, GROUP).await.unwrap();
            assert_none("started twice", &processes.history().check_at_most_once());
            if status.claimed != claimed {
                (claimed, since) = (status.claimed, env.now());
            }
            // A server may carry out a claim after the process that has sent it was killed. Where the number
            // counts, the process is killed when it claims nothing more.
            let is_quiet = journal || env.now().since(since) >= QUIET;
            let is_reported = status.done + 1 == started(&processes.history()).len() as u64;
            if is_quiet && is_reported && claimed > SLOTS as u64 {
                return;
            }
            env.sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    processes.kill("w1");
    let claimed = mill.admin().status(TOPIC, GROUP).await.unwrap().claimed;
    (processes, mill, job, claimed)
}

async fn lost(mill: &Sawmill) -> Vec<DeadLetter> {
    mill.admin().dead_letters(TOPIC, GROUP).await.unwrap().list(usize::MAX).await.unwrap()
}

/// Returns the messages in the order of their pushes.
fn pushed(history: &History) -> Vec<MessageId> {
    let id = |recorded: &Recorded| match &recorded.event {
        Event::Pushed { id, .. } => Some(*id),
        _ => None,
    };
    history.events().iter().filter_map(id).collect()
}

fn started(history: &History) -> Vec<MessageId> {
    let id = |recorded: &Recorded| match &recorded.event {
        Event::Started { id, .. } => Some(*id),
        _ => None,
    };
    history.events().iter().filter_map(id).collect()
}
