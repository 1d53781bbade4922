//! A process that pushes and works is killed at arbitrary moments, again and again. Every acknowledged
//! message is still there, and the file is sound.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use sawmill_conformance::history::Event;
use sawmill_conformance::processes::job::{Job, Role};
use sawmill_conformance::processes::parent::{ChildProcesses, play, soon};
use sawmill_conformance::processes::record::assert_none;
use sawmill_engine::runtime::Env;

use crate::{database, subject};

const TIMES: u64 = 100;
/// One in this many processes may be killed before its first push, even while opening the database.
const EARLY_KILL_EVERY: u64 = 4;
const SEED: u64 = 0x5a77_3111;

#[test]
fn a_process_killed_a_hundred_times_loses_nothing_that_was_acknowledged() {
    play(async {
        let mut processes = ChildProcesses::new(subject());
        let (mut random, mut processes_that_pushed) = (SEED, 0);
        for nth in 0..TIMES {
            let name = format!("w{nth}");
            let job = Job {
                role: Role::PushAndWork,
                work: Duration::from_millis(nth % 3),
                ttl: Duration::from_secs(5),
                ..Job::new(&name, processes.folder())
            };
            processes.start(&job);
            if !nth.is_multiple_of(EARLY_KILL_EVERY) {
                soon("the first push of a process", pushes(processes.folder(), &name)).await;
                processes_that_pushed += 1;
            }
            Env::system().sleep(Duration::from_millis(next(&mut random) % 100)).await;
            processes.kill(&name);
            if nth % 10 == 9 {
                assert_sound(&database(&processes));
            }
        }
        let acknowledged = pushed(&processes);
        assert!(
            acknowledged >= processes_that_pushed,
            "only {acknowledged} by {processes_that_pushed} processes"
        );

        let mill = processes.open().await;
        processes.start(&Job {
            work: Duration::ZERO,
            ttl: Duration::from_secs(5),
            ..Job::new("last", processes.folder())
        });
        let status = processes.drained(&mill).await;
        processes.stop().await;
        assert!(status.done >= acknowledged as u64, "{status:?}, and {acknowledged} were acknowledged");
        assert_eq!(status.dead, 0, "{status:?}");
        let history = processes.history();
        assert_none("lost", &history.check_nothing_lost());
        assert_none("started again without need", &history.check_second_starts_have_a_reason());
        drop(mill);
        assert_sound(&database(&processes));
        eprintln!("{TIMES} kills: {acknowledged} pushes were acknowledged, {} messages done", status.done);
    });
}

/// Returns the next pseudo-random number; the sequence is the same in every run.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// Completes when the process with this name has recorded a push.
async fn pushes(folder: &Path, name: &str) {
    let record = folder.join(format!("{name}-pushes.events"));
    while std::fs::metadata(&record).map_or(0, |file| file.len()) == 0 {
        Env::system().sleep(Duration::from_millis(1)).await;
    }
}

fn pushed(processes: &ChildProcesses) -> usize {
    let history = processes.history();
    history.events().iter().filter(|r| matches!(r.event, Event::Pushed { .. })).count()
}

fn assert_sound(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let said: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
}
