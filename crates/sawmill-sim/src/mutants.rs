//! Planted bugs: a simulation that does not find them is too weak.

use std::process::ExitCode;

#[cfg(not(feature = "planted"))]
pub(super) fn run(_seeds: u64, _start: u64, _threads: usize, _only: Option<&str>) -> ExitCode {
    eprintln!(
        "error: this program was built without planted bugs: add --features planted, or use cargo xtask sim --mutants"
    );
    ExitCode::from(2)
}

#[cfg(feature = "planted")]
pub(super) fn run(seeds: u64, start: u64, threads: usize, only: Option<&str>) -> ExitCode {
    let bugs: Vec<Planted> =
        planted().into_iter().filter(|bug| only.is_none_or(|only| bug.name == only)).collect();
    if bugs.is_empty() {
        eprintln!("error: there is no planted bug {}", only.unwrap_or_default());
        return ExitCode::from(2);
    }
    println!("{:<22}{:>10}  found by", "planted bug", "seeds");
    let mut missed = 0;
    for bug in &bugs {
        let summary = bug.run(seeds, start, threads);
        match &summary.failure {
            Some(failure) => println!("{:<22}{:>10}  {}", bug.name, summary.seeds, short(&failure.found)),
            None => {
                missed += 1;
                println!("{:<22}{:>10}  NOT FOUND: {}", bug.name, summary.seeds, bug.what.trim());
            }
        }
    }
    println!("\n{} planted bugs, {} found", bugs.len(), bugs.len() - missed);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(feature = "planted")]
fn short(found: &sawmill_sim::runner::Found) -> String {
    use sawmill_sim::runner::Found;
    match found {
        Found::Violation(violation) => violation.invariant.to_string(),
        Found::Panic(what) => format!("panic ({})", what.lines().last().unwrap_or_default()),
    }
}

#[cfg(feature = "planted")]
struct Planted {
    name: String,
    what: &'static str,
    core: Option<sawmill::planted::Bug>,
    engine: Option<sawmill_sim::EngineBug>,
}

#[cfg(feature = "planted")]
fn planted() -> Vec<Planted> {
    use sawmill::planted::Bug;
    use sawmill_sim::EngineBug;
    let core = Bug::ALL.iter().map(|(bug, what)| Planted {
        name: format!("{bug:?}"),
        what,
        core: Some(*bug),
        engine: None,
    });
    let engines = [
        (EngineBug::CursorById, "Positions are given before messages are readable."),
        (EngineBug::PromoteEarly, "Messages are promoted by a clock that is ahead."),
    ];
    let engines = engines.into_iter().map(|(bug, what)| Planted {
        name: format!("{bug:?}"),
        what,
        core: None,
        engine: Some(bug),
    });
    core.chain(engines).collect()
}

#[cfg(feature = "planted")]
impl Planted {
    fn run(&self, seeds: u64, start: u64, threads: usize) -> sawmill_sim::runner::Summary {
        use sawmill_sim::runner::{self, Batch};
        sawmill::planted::plant(self.core);
        let summary = runner::run(Batch { start, seeds, threads, bug: self.engine }, &|_| {});
        sawmill::planted::plant(None);
        summary
    }
}
