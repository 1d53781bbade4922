//! The gate: its steps, in order, and the count at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::engines::{Engine, Starting};
use crate::run::{Counts, Invocation, say};
use crate::tally::{Tally, skip_lines, verdict};
use crate::{behaviours, licences, programs, tools};

/// One check of the gate.
struct Step {
    name: &'static str,
    by: By,
    /// Split at spaces, so none of them may contain one.
    args: &'static str,
    env: &'static [(&'static str, &'static str)],
}

/// Who does a step, and what of its output counts.
enum By {
    /// Cargo: its exit code is the result.
    Cargo,
    /// Cargo, and the tests that it reports are counted.
    CargoTest,
    /// Cargo builds test programs; they run side by side, with a server of each engine beside them.
    EngineTest,
    /// Cargo builds examples, and then runs each of them: they check their own results, and count like tests.
    Examples,
    /// This program itself: what the dependencies may be.
    Licences,
}

const fn step(name: &'static str, by: By, args: &'static str) -> Step {
    Step { name, by, args, env: &[] }
}

/// Cheap steps come first, so that a slip of the pen is found before the long runs. Steps that build the same things name the same
/// features, or all that depends on these would be built once more.
const STEPS: &[Step] = &[
    step("format", By::Cargo, "fmt --all -- --check"),
    // With all that is optional, and with the planted bugs, which are lines more and no line less.
    step(
        "clippy",
        By::Cargo,
        "clippy --workspace --all-targets --features sawmill-sim/planted,sawmill-cli/full,sawmill/otel -- -D warnings",
    ),
    step("clippy-lean", By::Cargo, "clippy -p sawmill-cli --no-default-features --bins -- -D warnings"),
    step("tests", By::EngineTest, "test --workspace --tests --features sawmill-cli/full,sawmill/otel"),
    Step {
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        ..step(
            "docs",
            By::Cargo,
            "doc --workspace --no-deps --features sawmill-sim/planted,sawmill-cli/full,sawmill/otel",
        )
    },
    step(
        "doctests",
        By::CargoTest,
        "test --workspace --doc --no-fail-fast --features sawmill-cli/full,sawmill/otel",
    ),
    step("licences", By::Licences, "xtask test --only licences"),
    step("examples", By::Examples, "build --workspace --examples --features sawmill-cli/full,sawmill/otel"),
    step("sim", By::Cargo, "run --release -p sawmill-sim --features planted -- --seeds 2000 --fresh 200"),
    step("mutants", By::Cargo, "run --release -p sawmill-sim --features planted -- --mutants"),
];

impl Step {
    /// The command as a person would type it.
    fn typed(&self) -> Invocation {
        let typed = Invocation::cargo(&[]).args(self.args.split_whitespace());
        self.env.iter().fold(typed, |typed, (name, value)| typed.env(name, *value))
    }
}

/// How the tests are built and run: the step of that name.
pub(crate) fn tests_command() -> Invocation {
    let tests = STEPS.iter().find(|step| matches!(step.by, By::EngineTest));
    tests.map_or_else(|| Invocation::cargo(&["test"]), Step::typed)
}

pub(crate) fn step_names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

pub(crate) fn list() {
    for step in STEPS {
        say(&format!("{:<15} {}", step.name, step.typed()));
    }
}

/// Runs the steps of these names, up to the first that fails. The last line is `N passed, M failed, K skipped`.
pub(crate) fn run(names: &[&str]) -> ExitCode {
    let started = Instant::now();
    let mut gate = match Gate::open() {
        Ok(gate) => gate,
        Err(error) => {
            eprintln!("error: the gate cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let chosen: Vec<&Step> = STEPS.iter().filter(|step| names.contains(&step.name)).collect();
    if chosen.iter().any(|step| matches!(step.by, By::EngineTest)) {
        gate.engines = Some(Starting::all());
    }
    let all_passed = chosen.into_iter().all(|step| gate.passes(step));
    gate.close();
    for test in &gate.second_runs {
        say(&format!("passed in its second run only: {test}"));
    }
    say(&format!("total time: {}", readable(started.elapsed())));
    say(&gate.tally.to_string());
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How one step ended.
enum Outcome {
    Passed,
    Failed { why: String, again: Invocation },
}

/// A run of the gate: what it counted so far.
struct Gate {
    /// With `CI=true` nothing may be skipped: what a laptop lacks, the server must have.
    strict: bool,
    /// Tests that skip themselves (no server to talk to, say) append a line with the reason to this file.
    skips_file: PathBuf,
    tally: Tally,
    /// Got and started while the first steps build.
    engines: Option<Starting>,
    second_runs: Vec<String>,
}

impl Gate {
    fn open() -> io::Result<Self> {
        tools::enter_repository()?;
        let folder = std::env::current_dir()?.join(tools::target_dir()).join("xtask");
        fs::create_dir_all(&folder)?;
        let skips_file = folder.join(format!("skips-{}.txt", std::process::id()));
        fs::write(&skips_file, "")?;
        let strict = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        Ok(Self { strict, skips_file, tally: Tally::default(), engines: None, second_runs: Vec::new() })
    }

    fn close(&mut self) {
        // A step before the tests has failed.
        if let Some(starting) = self.engines.take() {
            starting.wait().engines.end();
        }
        // Only tidiness: the file is empty and lies among build products.
        let _ = fs::remove_file(&self.skips_file);
    }

    /// Runs one step and says how it went.
    fn passes(&mut self, step: &Step) -> bool {
        let name = step.name;
        say(&format!("== {name}: {}", step.typed()));
        let started = Instant::now();
        let outcome = match step.by {
            By::Cargo => run_plain(step.typed()),
            By::CargoTest => self.run_tests(step),
            By::EngineTest => self.run_engine_tests(step),
            By::Examples => self.run_examples(step),
            By::Licences => match licences::check() {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Failed { why, again: step.typed() },
            },
        };
        let time = readable(started.elapsed());
        match outcome {
            Outcome::Passed => say(&format!("== {name}: ok, {time}\n")),
            Outcome::Failed { why, again } => {
                say(&format!("== {name}: FAILED, {time}: {why}\nto repeat this step: {again}\n"));
                // A step that failed without a failed test is one failure, too.
                self.tally.failed = self.tally.failed.max(1);
                return false;
            }
        }
        true
    }

    /// Where an engine cannot be had, its tests skip themselves visibly; in CI that is a failure.
    fn run_engine_tests(&mut self, step: &Step) -> Outcome {
        // The servers of this run are gone when a person repeats it; the gate starts new ones.
        let again = Invocation::cargo(&["xtask", "test", "--only", step.name]);
        let built = programs::build(&step.typed()).map_err(|error| error.to_string()).and_then(|programs| {
            behaviours::check(&programs, &step.typed())?;
            Ok(programs)
        });
        let mut started = self.engines.take().unwrap_or_else(Starting::all).wait();
        started.lacking.iter().for_each(|why| say(why));
        let ran = match built {
            Err(why) => Err(why),
            Ok(_) if self.strict && !started.lacking.is_empty() => Err(started.lacking.join("; ")),
            Ok(programs) => {
                let command = step.typed().env("SAWMILL_SKIPS", &self.skips_file);
                let with_url = |command: Invocation, (engine, url): &(Engine, String)| {
                    command.env(engine.variable(), url)
                };
                Ok(programs::run(programs, &started.urls.iter().fold(command, with_url)))
            }
        };
        started.engines.end();
        match ran {
            Ok(ran) => {
                self.second_runs.extend(ran.second_runs);
                let broken = (!ran.failed.is_empty()).then(|| ran.failed.join("; "));
                self.judge(ran.counts, broken, again)
            }
            Err(why) => Outcome::Failed { why, again },
        }
    }

    /// Tests that Cargo runs by itself.
    fn run_tests(&mut self, step: &Step) -> Outcome {
        let again = step.typed();
        match step.typed().env("SAWMILL_SKIPS", &self.skips_file).run_counting() {
            Ok((status, counts)) => {
                let broken = (!status.success()).then(|| status.to_string());
                self.judge(counts, broken, again)
            }
            Err(error) => Outcome::Failed { why: error.to_string(), again },
        }
    }

    /// Counts what ran and what was skipped. `broken` says what did not end well.
    fn judge(&mut self, counts: Counts, broken: Option<String>, again: Invocation) -> Outcome {
        let skips = match self.take_skips() {
            Ok(skips) => skips,
            Err(error) => {
                let why = format!("{} cannot be read: {error}", self.skips_file.display());
                return Outcome::Failed { why, again };
            }
        };
        for skip in &skips {
            say(&format!("SKIPPED: {skip}"));
        }
        self.tally.add(counts, skips.len());
        match verdict(broken, counts, skips.len(), self.strict) {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Failed { why, again },
        }
    }

    fn run_examples(&mut self, step: &Step) -> Outcome {
        let built = run_plain(step.typed());
        if !matches!(built, Outcome::Passed) {
            return built;
        }
        let names = match example_names(Path::new(EXAMPLES)) {
            Ok(names) => names,
            Err(error) => {
                let why = format!("{EXAMPLES} cannot be read: {error}");
                return Outcome::Failed { why, again: step.typed() };
            }
        };
        for name in names {
            say(&format!("-- example {name}"));
            match run_plain(built_example(&name)) {
                Outcome::Failed { why, .. } => {
                    self.tally.failed += 1;
                    return Outcome::Failed { why: format!("example {name}: {why}"), again: example(&name) };
                }
                _ => self.tally.passed += 1,
            }
        }
        Outcome::Passed
    }

    /// What was skipped since the last time this was asked.
    fn take_skips(&self) -> io::Result<Vec<String>> {
        let skips = skip_lines(&fs::read_to_string(&self.skips_file)?);
        fs::write(&self.skips_file, "")?;
        Ok(skips)
    }
}

/// Where the examples are. Those in folders, like the benchmark, are programs to be run by hand.
const EXAMPLES: &str = "crates/sawmill-sqlite/examples";

/// An example as a person would run it.
fn example(name: &str) -> Invocation {
    Invocation::cargo(&["run", "-q", "-p", "sawmill-sqlite", "--example", name])
}

/// The program that was built of it. To run it by cargo would build much of it again, for one package alone.
fn built_example(name: &str) -> Invocation {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    Invocation::program(&tools::target_dir().join("debug").join("examples").join(file))
}

/// The names of the examples that are a single file, in their order.
fn example_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort_unstable();
    match names.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "there is no example in it")),
        false => Ok(names),
    }
}

fn run_plain(invocation: Invocation) -> Outcome {
    match invocation.run() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed { why: status.to_string(), again: invocation },
        Err(error) => Outcome::Failed { why: error.to_string(), again: invocation },
    }
}

fn readable(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let names = step_names();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| !name.contains([',', ' '])));
    }

    #[test]
    fn a_step_is_shown_with_its_environment() {
        let docs = STEPS.iter().find(|step| step.name == "docs").unwrap();
        assert_eq!(
            docs.typed().to_string(),
            "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps \
             --features sawmill-sim/planted,sawmill-cli/full,sawmill/otel"
        );
    }

    #[test]
    fn the_examples_are_the_single_files_and_an_empty_folder_is_an_error() {
        let names = example_names(&Path::new("..").join(EXAMPLES)).unwrap();
        assert!(names.iter().any(|name| name == "quickstart"), "{names:?}");
        assert!(!names.iter().any(|name| name == "bench"), "{names:?}");
        assert!(names.is_sorted());
        assert!(example_names(Path::new("src/no such folder")).is_err());
        assert!(example_names(Path::new("..")).is_err(), "no example there");
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(readable(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(readable(Duration::from_secs(185)), "3 min 05 s");
    }
}
