//! Runs the gate: its steps in order, and the counts at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::engines::{Engine, StartingEngines};
use crate::run::{Counts, Invocation, say};
use crate::tally::{Tally, skip_lines, verdict};
use crate::{behaviours, layers, licences, programs, tools};

/// One check of the gate.
struct Step {
    name: &'static str,
    runner: Runner,
    /// Split at spaces, so no argument may contain one.
    args: &'static str,
    env: &'static [(&'static str, &'static str)],
}

/// How a step is run, and which part of its output counts.
enum Runner {
    /// Cargo; its exit code is the result.
    Cargo,
    /// Cargo; the tests that it reports are counted.
    CargoTest,
    /// Cargo builds the test programs; several run at a time, with a server of each engine.
    EngineTest,
    /// Cargo builds the examples, then each is run. They check their own results, and count like tests.
    Examples,
    /// This program checks the licences of the dependencies.
    Licences,
    /// This program itself: which parts may use which others.
    Layers,
}

/// The time limit of a step that runs in parallel with the tests.
const PARALLEL_TIME_LIMIT: Duration = Duration::from_secs(60 * 60);

const fn step(name: &'static str, runner: Runner, args: &'static str) -> Step {
    Step { name, runner, args, env: &[] }
}

/// The steps after the tests run in parallel with them, because tests mostly wait. These steps get no second
/// run, so nothing in them may depend on the load of the machine: only doctests and examples run workers,
/// each with a TTL of 10 s or more, or on a clock of its own. Steps that build the same crates name the same
/// features; otherwise everything that depends on those would be built again.
const STEPS: &[Step] = &[
    step("format", Runner::Cargo, "fmt --all -- --check"),
    step("layers", Runner::Layers, "xtask test --only layers"),
    step("tests", Runner::EngineTest, "test --workspace --tests --features sawmill-cli/full,sawmill/otel"),
    // With all optional features and the planted bugs, which only add lines.
    step(
        "clippy",
        Runner::Cargo,
        "clippy --workspace --all-targets --features sawmill-sim/planted,sawmill-cli/full,sawmill/otel -- -D warnings",
    ),
    step("clippy-lean", Runner::Cargo, "clippy -p sawmill-cli --no-default-features --bins -- -D warnings"),
    Step {
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        ..step(
            "docs",
            Runner::Cargo,
            "doc --workspace --no-deps --features sawmill-sim/planted,sawmill-cli/full,sawmill/otel",
        )
    },
    step(
        "doctests",
        Runner::CargoTest,
        "test --workspace --doc --no-fail-fast --features sawmill-cli/full,sawmill/otel",
    ),
    step("licences", Runner::Licences, "xtask test --only licences"),
    step(
        "examples",
        Runner::Examples,
        "build --workspace --examples --features sawmill-cli/full,sawmill/otel",
    ),
    step("sim", Runner::Cargo, "run --release -p sawmill-sim --features planted -- --seeds 2000 --fresh 200"),
    step("mutants", Runner::Cargo, "run --release -p sawmill-sim --features planted -- --mutants"),
];

impl Step {
    /// The command as a person would type it.
    fn typed(&self) -> Invocation {
        let typed = Invocation::cargo(&[]).args(self.args.split_whitespace());
        self.env.iter().fold(typed, |typed, (name, value)| typed.env(name, *value))
    }
}

/// The command that builds and runs the tests: that of the step `tests`.
pub(crate) fn tests_command() -> Invocation {
    let tests = STEPS.iter().find(|step| matches!(step.runner, Runner::EngineTest));
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

/// Runs the steps with these names, up to the first that fails. The last line is `N passed, M failed, K
/// skipped`.
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
    if chosen.iter().any(|step| matches!(step.runner, Runner::EngineTest)) {
        gate.engines = Some(StartingEngines::all());
    }
    let all_passed = gate.pass_all(&chosen);
    gate.close();
    for test in &gate.second_runs {
        say(&format!("flaky, passed only in its second run: {test}"));
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

/// A run of the gate, with the counts so far.
struct Gate {
    /// With `CI=true` nothing may be skipped: CI must have all that a laptop may lack.
    strict: bool,
    /// Tests that skip themselves (without a server, for example) append a line with the reason to this file.
    skips_file: PathBuf,
    tally: Tally,
    /// The engines, which are downloaded and started while the tests are built.
    engines: Option<StartingEngines>,
    second_runs: Vec<String>,
    /// True if its steps run in parallel with the tests: at the lowest priority, with their output shown when
    /// they end.
    beside: bool,
}

impl Gate {
    fn open() -> io::Result<Self> {
        tools::enter_repository()?;
        let folder = std::env::current_dir()?.join(tools::target_dir()).join("xtask");
        fs::create_dir_all(&folder)?;
        let strict = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        Self::counting_skips_in(folder.join(format!("skips-{}.txt", std::process::id())), strict)
    }

    fn counting_skips_in(skips_file: PathBuf, strict: bool) -> io::Result<Self> {
        fs::write(&skips_file, "")?;
        let tally = Tally::default();
        Ok(Self { strict, skips_file, tally, engines: None, second_runs: Vec::new(), beside: false })
    }

    /// Opens a gate for the steps that run in parallel with the tests of this one.
    fn open_beside(&self) -> io::Result<Self> {
        let gate = Self::counting_skips_in(self.skips_file.with_extension("beside.txt"), self.strict)?;
        Ok(Self { beside: true, ..gate })
    }

    fn close(&mut self) {
        // They are still here if a step before the tests has failed.
        if let Some(starting) = self.engines.take() {
            starting.wait().engines.end();
        }
        // A failure does no harm: the file is empty and lies among build products.
        let _ = fs::remove_file(&self.skips_file);
    }

    /// Runs the steps in order, up to the first that fails. The steps after the tests run in parallel with
    /// them.
    fn pass_all(&mut self, steps: &[&Step]) -> bool {
        for (at, step) in steps.iter().enumerate() {
            if matches!(step.runner, Runner::EngineTest) {
                return self.passes(step, &steps[at + 1..]);
            }
            if !self.passes(step, &[]) {
                return false;
            }
        }
        true
    }

    /// Runs one step, with others in parallel, and reports its result.
    fn passes(&mut self, step: &Step, beside: &[&Step]) -> bool {
        let (name, started) = (step.name, Instant::now());
        say(&format!("== {name}: {}", step.typed()));
        let outcome = match step.runner {
            Runner::Cargo => self.run_plain(step.typed()),
            Runner::CargoTest => self.run_tests(step),
            Runner::EngineTest => self.run_engine_tests(step, beside),
            Runner::Examples => self.run_examples(step),
            Runner::Layers => match layers::check(Path::new(".")) {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Failed { why, again: step.typed() },
            },
            Runner::Licences => match licences::check() {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Failed { why, again: step.typed() },
            },
        };
        let time = readable(started.elapsed());
        match outcome {
            Outcome::Passed => say(&format!("== {name}: ok, {time}\n")),
            Outcome::Failed { why, again } => {
                say(&format!("== {name}: FAILED, {time}: {why}\nto repeat this step: {again}\n"));
                // A step that failed without a failed test counts as one failure.
                self.tally.failed = self.tally.failed.max(1);
                return false;
            }
        }
        true
    }

    /// Runs the tests with all engines, and these other steps in parallel. If an engine cannot be had, its
    /// tests skip themselves visibly; in CI that is a failure.
    fn run_engine_tests(&mut self, step: &Step, beside: &[&Step]) -> Outcome {
        // The servers of this run will be gone, so the command to repeat the step starts new ones.
        let again = Invocation::cargo(&["xtask", "test", "--only", step.name]);
        let built = programs::build(&step.typed()).map_err(|error| error.to_string()).and_then(|programs| {
            behaviours::check(&programs, &step.typed())?;
            Ok(programs)
        });
        let mut started = self.engines.take().unwrap_or_else(StartingEngines::all).wait();
        started.lacking.iter().for_each(|why| say(why));
        let ran = match built {
            Err(why) => Err(why),
            Ok(_) if self.strict && !started.lacking.is_empty() => Err(started.lacking.join("; ")),
            Ok(programs) => {
                let command = step.typed().env("SAWMILL_SKIPS", &self.skips_file);
                let with_url = |command: Invocation, (engine, url): &(Engine, String)| {
                    command.env(engine.variable(), url)
                };
                let command = started.urls.iter().fold(command, with_url);
                self.with_steps_beside(beside, || programs::run(programs, &command))
            }
        };
        started.engines.end();
        match ran {
            Ok((ran, beside_passed)) => {
                self.second_runs.extend(ran.second_runs);
                let broken = (!ran.failed.is_empty()).then(|| ran.failed.join("; "));
                match self.judge(ran.counts, broken, again.clone()) {
                    Outcome::Passed if !beside_passed => {
                        Outcome::Failed { why: "a step run in parallel has failed".to_owned(), again }
                    }
                    outcome => outcome,
                }
            }
            Err(why) => Outcome::Failed { why, again },
        }
    }

    /// Runs `work` in parallel with these steps. Also returns whether the steps have passed.
    fn with_steps_beside<T>(
        &mut self,
        steps: &[&Step],
        work: impl FnOnce() -> T,
    ) -> Result<(T, bool), String> {
        let mut beside = self.open_beside().map_err(|error| error.to_string())?;
        let (done, passed) = thread::scope(|scope| {
            let steps = scope.spawn(|| beside.pass_all(steps));
            (work(), steps.join().unwrap_or(false))
        });
        beside.close();
        self.tally += beside.tally;
        Ok((done, passed))
    }

    /// Runs a command and counts the tests that it reports.
    fn run_command(&self, command: Invocation) -> io::Result<(ExitStatus, Counts)> {
        if !self.beside {
            return command.run_counting();
        }
        let ended = command.at_lowest_priority().run_quietly(PARALLEL_TIME_LIMIT)?;
        say(ended.printed.trim_end());
        Ok((ended.status, ended.counts))
    }

    fn run_plain(&self, command: Invocation) -> Outcome {
        match self.run_command(command.clone()) {
            Ok((status, _)) if status.success() => Outcome::Passed,
            Ok((status, _)) => Outcome::Failed { why: status.to_string(), again: command },
            Err(error) => Outcome::Failed { why: error.to_string(), again: command },
        }
    }

    /// Runs tests with Cargo itself.
    fn run_tests(&mut self, step: &Step) -> Outcome {
        let again = step.typed();
        match self.run_command(step.typed().env("SAWMILL_SKIPS", &self.skips_file)) {
            Ok((status, counts)) => {
                let broken = (!status.success()).then(|| status.to_string());
                self.judge(counts, broken, again)
            }
            Err(error) => Outcome::Failed { why: error.to_string(), again },
        }
    }

    /// Counts the tests that ran and those that were skipped. `broken` describes the programs that failed.
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
        let built = self.run_plain(step.typed());
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
            match self.run_plain(built_example(&name)) {
                Outcome::Failed { why, .. } => {
                    self.tally.failed += 1;
                    return Outcome::Failed { why: format!("example {name}: {why}"), again: example(&name) };
                }
                _ => self.tally.passed += 1,
            }
        }
        Outcome::Passed
    }

    /// Takes the skips since the last call.
    fn take_skips(&self) -> io::Result<Vec<String>> {
        let skips = skip_lines(&fs::read_to_string(&self.skips_file)?);
        fs::write(&self.skips_file, "")?;
        Ok(skips)
    }
}

/// The folder of the examples. Examples in subfolders, like the benchmark, are run by hand.
const EXAMPLES: &str = "crates/sawmill/examples";

/// The command with which a person would run an example.
fn example(name: &str) -> Invocation {
    Invocation::cargo(&["run", "-q", "-p", "sawmill", "--features", "sqlite", "--example", name])
}

/// The program that was built from an example. `cargo run` would rebuild much of it, because it selects
/// features for one package only.
fn built_example(name: &str) -> Invocation {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    Invocation::program(&tools::target_dir().join("debug").join("examples").join(file))
}

/// The names of the examples that are a single file, sorted.
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
