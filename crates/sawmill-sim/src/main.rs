//! The command line of the simulation: runs seeds, or checks that planted bugs are found.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use sawmill::engine::runtime::{Rng, SystemRng};
use sawmill_sim::runner::{self, Batch, Failure, Summary};
use sawmill_sim::{FaultKind, Feature};

mod mutants;

/// Fresh seeds start at this number, above all seeds that are run by hand.
const FRESH_FROM: u64 = 1 << 40;

const HELP: &str = "\
sawmill-sim: the real core on a simulated clock, network and store; one seed is one history

Usage: sawmill-sim --seeds N [--start S] [--fresh F] [--threads T]
       sawmill-sim --mutants [--seeds M] [--start S] [--threads T]

Options:
  --seeds N      How many seeds to run; with --mutants, how many at most for each bug [default there: 1000]
  --start S      The first seed [default: 0]
  --fresh F      Then run F more seeds, beginning at a random one; how to repeat them is printed [default: 0]
  --threads T    On how many threads; the result does not depend on it [default: 2]
  --mutants      Plant each known bug in turn and see whether it is found (needs the cargo feature `planted`)
  --only NAME    With --mutants: this bug alone
  --lines N      How many lines of a failing history to show [default: 40]
  --about TEXT   Which of them: those that contain this [default: those about what failed]
  --help         Show this text

Examples:
  cargo xtask sim --seeds 2000 --fresh 200        the gate's run
  cargo xtask sim --seeds 1 --start 17            seed 17 again
  cargo xtask sim --mutants                       does the simulation find the planted bugs?

Exit codes: 0 all good, 1 something was found (with --mutants: something was not found), 2 the command line was wrong
";

struct Args {
    seeds: Option<u64>,
    start: u64,
    fresh: u64,
    threads: usize,
    mutants: bool,
    only: Option<String>,
    lines: usize,
    about: Option<String>,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("error: {wrong}\n\nTry --help.");
            return ExitCode::from(2);
        }
    };
    match (args.mutants, args.seeds) {
        (true, seeds) => mutants::run(seeds.unwrap_or(1000), args.start, args.threads, args.only.as_deref()),
        (false, Some(seeds)) => match seeds_run(&args, args.start, seeds) {
            true => fresh_run(&args),
            false => ExitCode::from(1),
        },
        (false, None) => {
            eprintln!("error: say how many seeds to run: --seeds N\n\nTry --help.");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let mut parsed = Args {
        seeds: None,
        start: 0,
        fresh: 0,
        threads: 2,
        mutants: false,
        only: None,
        lines: 40,
        about: None,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--mutants" => parsed.mutants = true,
            "--seeds" => parsed.seeds = Some(number(value()?)?),
            "--start" => parsed.start = number(value()?)?,
            "--fresh" => parsed.fresh = number(value()?)?,
            "--threads" => parsed.threads = (number(value()?)? as usize).clamp(1, 1024),
            "--lines" => parsed.lines = number(value()?)? as usize,
            "--about" => parsed.about = Some(value()?),
            "--only" => parsed.only = Some(value()?),
            other => return Err(format!("there is no option {other}")),
        }
    }
    if parsed.seeds == Some(0) {
        return Err("no seeds, no histories: --seeds must be at least 1".to_owned());
    }
    if parsed.only.is_some() && !parsed.mutants {
        return Err("--only names a planted bug: it goes with --mutants".to_owned());
    }
    if parsed.fresh > 0 && parsed.mutants {
        return Err(
            "--fresh cannot be used with --mutants: planted bugs are searched in fixed seeds".to_owned()
        );
    }
    Ok(Some(parsed))
}

/// Runs seeds that were never run before, and prints how to repeat them.
fn fresh_run(args: &Args) -> ExitCode {
    if args.fresh == 0 {
        return ExitCode::SUCCESS;
    }
    let start = FRESH_FROM + SystemRng.next_u64() % FRESH_FROM;
    println!("fresh seeds; to repeat them: cargo xtask sim --seeds {} --start {start}\n", args.fresh);
    match seeds_run(args, start, args.fresh) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    }
}

/// Runs seeds and prints the result. Returns true if nothing was found.
fn seeds_run(args: &Args, start: u64, seeds: u64) -> bool {
    let terminal = std::io::stderr().is_terminal();
    let progress = |done: u64| {
        if terminal && (done.is_multiple_of(10) || done == seeds) {
            eprint!("\r{done} of {seeds} seeds");
            let _ = std::io::stderr().flush();
        }
    };
    let batch = Batch { start, seeds, threads: args.threads, bug: None, wanted: None };
    let summary = runner::run(batch, &progress);
    if terminal {
        eprintln!();
    }
    print_summary(&summary);
    match &summary.failure {
        None => all_struck(&summary),
        Some(failure) => {
            print_failure(failure, args);
            false
        }
    }
}

/// A fault or feature that was never used in this many seeds is not tested any more.
const ENOUGH_SEEDS: u64 = 1000;
/// At most one in this many histories may be void.
const MAX_VOID: u64 = 200;

fn all_struck(summary: &Summary) -> bool {
    let faults =
        FaultKind::ALL.iter().filter(|kind| summary.tally.count(**kind) == 0).map(|kind| kind.name());
    let features =
        Feature::ALL.iter().filter(|feature| summary.features.of(**feature) == 0).map(|of| of.name());
    let missing: Vec<&str> = faults.chain(features).collect();
    if summary.seeds < ENOUGH_SEEDS {
        return true;
    }
    if summary.void * MAX_VOID > summary.seeds {
        println!("FAILED: {} of {} histories have an end that does not count", summary.void, summary.seeds);
        return false;
    }
    if missing.is_empty() {
        return true;
    }
    println!("FAILED: never happened in {} seeds: {}", summary.seeds, missing.join(", "));
    false
}

fn print_summary(summary: &Summary) {
    println!("seeds            {:>12}", summary.seeds);
    println!("simulated time   {:>12}", format!("{} s", summary.time.as_secs()));
    println!("messages pushed  {:>12}", summary.pushed);
    println!("handler starts   {:>12}", summary.starts);
    println!("formats raised   {:>12}", summary.formats_raised);
    println!("void endings     {:>12}", summary.void);
    println!("hash of traces   {:016x}", summary.hash);
    println!("\nfaults that struck\n{}", summary.tally);
    println!("features that were used\n{}", summary.features);
    println!("checks by invariant\n{}", summary.checks);
}

fn print_failure(failure: &Failure, args: &Args) {
    println!("FAILED: seed {}: {}\n", failure.seed, failure.found);
    for line in runner::lines_that_matter(failure, None, args.about.as_deref(), args.lines) {
        println!("{line}");
    }
    println!("\nTo repeat it: cargo xtask sim --seeds 1 --start {}", failure.seed);
}
