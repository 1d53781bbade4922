//! Planted bugs: the simulation must find each of them.

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
            Some(_) => println!("{:<22}{:>10}  {}", bug.name, summary.seeds, bug.by),
            None => {
                missed += 1;
                let what = bug.what.trim();
                println!("{:<22}{:>10}  NOT FOUND by {}: {what}", bug.name, summary.seeds, bug.by);
            }
        }
    }
    println!("\n{} planted bugs, {} found", bugs.len(), bugs.len() - missed);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(feature = "planted")]
struct Planted {
    name: String,
    what: &'static str,
    /// The invariant that must find it.
    by: sawmill_sim::checker::Invariant,
    core: Option<sawmill::engine::fault_injection::Bug>,
    engine: Option<sawmill_sim::EngineBug>,
}

#[cfg(feature = "planted")]
fn planted() -> Vec<Planted> {
    use sawmill::engine::fault_injection::Bug;
    use sawmill_sim::EngineBug;
    use sawmill_sim::checker::Invariant;
    let core = Bug::ALL.iter().map(|(bug, what, by)| Planted {
        name: format!("{bug:?}"),
        what,
        by: Invariant::numbered(*by).expect("a planted bug names an invariant that there is"),
        core: Some(*bug),
        engine: None,
    });
    let engines = EngineBug::ALL.iter().map(|(bug, what, by)| Planted {
        name: format!("{bug:?}"),
        what,
        by: *by,
        core: None,
        engine: Some(*bug),
    });
    core.chain(engines).collect()
}

#[cfg(feature = "planted")]
impl Planted {
    fn run(&self, seeds: u64, start: u64, threads: usize) -> sawmill_sim::runner::Summary {
        use sawmill_sim::runner::{self, Batch};
        sawmill::engine::fault_injection::plant(self.core);
        let summary =
            runner::run(Batch { start, seeds, threads, bug: self.engine, wanted: Some(self.by) }, &|_| {});
        sawmill::engine::fault_injection::plant(None);
        summary
    }
}
