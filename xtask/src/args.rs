//! Parses the command line in two steps: into words and options ([`Typed`]), and into a [`Task`].

use std::ffi::OsString;
use std::fmt;

use crate::engines::Engine;
use crate::{soak, test};

/// A task, checked as far as possible before it runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    ListSteps,
    /// The names of the steps to run, in the order of the gate.
    Test {
        steps: Vec<&'static str>,
    },
    EnginesUp {
        engines: Vec<Engine>,
    },
    EnginesDown,
    Sim {
        args: Vec<String>,
    },
    Soak {
        parts: Vec<&'static str>,
        start: u64,
    },
    /// Writes the table of behaviours.
    Behaviours,
    Pictures,
    Bench {
        engine: &'static str,
        /// The server that it needs.
        server: Option<Engine>,
        args: Vec<String>,
    },
}

/// A mistake on the command line, described for the user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The default first seed, far from those of the gate, which start at the bottom.
const SOAK_START: u64 = 1_000_000;

/// The engines that can be measured, and the servers that they need.
const BENCHES: &[(&str, Option<Engine>)] = &[
    ("sqlite", None),
    ("postgres", Some(Engine::Postgres)),
    ("mysql", Some(Engine::Mariadb)),
    ("zookeeper", Some(Engine::Zookeeper)),
    ("kafka", Some(Engine::Kafka)),
    ("cassandra", Some(Engine::Cassandra)),
];
/// The options that are passed on to the benchmark: those with a number, and flags.
const BENCH_NUMBERS: &[&str] =
    &["--n", "--rounds", "--latency-seconds", "--backlog", "--idle-seconds", "--pin", "--serve"];
const BENCH_FLAGS: &[&str] = &["--quick", "--json"];

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Task, UsageError> {
    let mut words = Vec::new();
    for arg in args {
        words.push(arg.into_string().map_err(|arg| UsageError(format!("{arg:?} is not valid UTF-8")))?);
    }
    let Some((task, rest)) = words.split_first() else {
        return Ok(Task::Help);
    };
    // The simulation has its own options, `--help` among them.
    if task == "sim" {
        return Ok(Task::Sim { args: rest.to_vec() });
    }
    let with_value = [&["--only", "--start"], BENCH_NUMBERS].concat();
    let mut typed = Typed::split(rest, &with_value)?;
    if matches!(task.as_str(), "help" | "-h" | "--help") || typed.flag("--help") || typed.flag("-h") {
        return Ok(Task::Help);
    }
    let parsed_task = match task.as_str() {
        "test" => test_task(&mut typed)?,
        "soak" => {
            let parts = chosen(&mut typed, "part", soak::part_names())?;
            Task::Soak { parts, start: typed.number("--start")?.unwrap_or(SOAK_START) }
        }
        "behaviours" => Task::Behaviours,
        "pictures" => Task::Pictures,
        "bench" => bench_task(&mut typed)?,
        "engines" => engines_task(&mut typed)?,
        other => return Err(UsageError(format!("there is no task `{other}`"))),
    };
    typed.nothing_left(task)?;
    Ok(parsed_task)
}

fn test_task(typed: &mut Typed) -> Result<Task, UsageError> {
    if typed.flag("--list") {
        return Ok(Task::ListSteps);
    }
    Ok(Task::Test { steps: chosen(typed, "step", test::step_names())? })
}

/// The known names that `--only` lists, in their known order; all of them without `--only`.
fn chosen(typed: &mut Typed, what: &str, known: Vec<&'static str>) -> Result<Vec<&'static str>, UsageError> {
    let Some(only) = typed.value("--only") else {
        return Ok(known);
    };
    let wanted: Vec<&str> = only.split(',').map(str::trim).collect();
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(UsageError(format!(
            "there is no {what} `{unknown}`; the {what}s are {}",
            known.join(", ")
        )));
    }
    Ok(known.into_iter().filter(|name| wanted.contains(name)).collect())
}

fn bench_task(typed: &mut Typed) -> Result<Task, UsageError> {
    let names: Vec<&str> = BENCHES.iter().map(|(engine, _)| *engine).collect();
    let names = names.join(", ");
    let Some(engine) = typed.word() else {
        return Err(UsageError(format!("bench needs an engine: {names}")));
    };
    let Some((engine, server)) = BENCHES.iter().find(|(known, _)| *known == engine) else {
        return Err(UsageError(format!("there is no benchmark of `{engine}`; there is {names}")));
    };
    let mut args = Vec::new();
    for name in BENCH_NUMBERS {
        if let Some(number) = typed.number(name)? {
            args.extend([(*name).to_owned(), number.to_string()]);
        }
    }
    if let Some(only) = typed.value("--only") {
        args.extend(["--only".to_owned(), only]);
    }
    args.extend(BENCH_FLAGS.iter().filter(|name| typed.flag(name)).map(|name| (*name).to_owned()));
    Ok(Task::Bench { engine, server: *server, args })
}

fn engines_task(typed: &mut Typed) -> Result<Task, UsageError> {
    match typed.word().as_deref() {
        Some("down") => Ok(Task::EnginesDown),
        Some("up") => {
            let mut engines = Vec::new();
            while let Some(word) = typed.word() {
                let known: Vec<&str> = Engine::ALL.iter().map(|engine| engine.name()).collect();
                let unknown =
                    || UsageError(format!("there is no engine `{word}`; there is {}", known.join(", ")));
                engines.push(Engine::named(&word).ok_or_else(unknown)?);
            }
            if engines.is_empty() {
                engines = Engine::ALL.to_vec();
            }
            Ok(Task::EnginesUp { engines })
        }
        Some(other) => Err(UsageError(format!("engines are `up` or `down`, not `{other}`"))),
        None => Err(UsageError("engines needs `up` or `down`".to_owned())),
    }
}

/// The words and options after the task, not yet parsed. Parsing takes them out; anything left at the end is
/// a mistake.
#[derive(Debug, Default)]
struct Typed {
    words: Vec<String>,
    options: Vec<(String, Option<String>)>,
}

impl Typed {
    /// Options in `with_value` take the next word or the text after `=` as their value; all others are flags.
    fn split(args: &[String], with_value: &[&str]) -> Result<Self, UsageError> {
        let mut typed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with('-') {
                typed.words.push(arg.clone());
                continue;
            }
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (arg.as_str(), None),
            };
            let value = match value {
                None if with_value.contains(&name) => {
                    let next = args.next();
                    Some(next.cloned().ok_or_else(|| UsageError(format!("{name} needs a value")))?)
                }
                Some(_) if !with_value.contains(&name) => {
                    return Err(UsageError(format!("{name} takes no value")));
                }
                value => value,
            };
            typed.options.push((name.to_owned(), value));
        }
        Ok(typed)
    }

    fn word(&mut self) -> Option<String> {
        if self.words.is_empty() { None } else { Some(self.words.remove(0)) }
    }

    fn take(&mut self, name: &str) -> Option<(String, Option<String>)> {
        let at = self.options.iter().position(|(typed, _)| typed == name)?;
        Some(self.options.remove(at))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    fn value(&mut self, name: &str) -> Option<String> {
        self.take(name).and_then(|(_, value)| value)
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, UsageError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(UsageError(format!("{name} needs a whole number, not `{value}`"))),
        }
    }

    fn nothing_left(&self, task: &str) -> Result<(), UsageError> {
        match self.options.iter().map(|(name, _)| name).chain(&self.words).next() {
            Some(left) => Err(UsageError(format!("`{left}` is unknown to {task}, or given twice"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|usage| usage.to_string())
    }

    #[test]
    fn nothing_and_help_show_the_help() {
        for line in ["", "help", "-h", "--help", "test --help", "bench -h", "help test"] {
            assert_eq!(parsed(line), Ok(Task::Help), "{line}");
        }
    }

    #[test]
    fn test_runs_every_step_unless_told_otherwise() {
        assert_eq!(parsed("test"), Ok(Task::Test { steps: test::step_names() }));
        assert_eq!(parsed("test --list"), Ok(Task::ListSteps));
    }

    #[test]
    fn chosen_steps_run_in_the_order_of_the_gate() {
        let chosen = Ok(Task::Test { steps: vec!["format", "clippy"] });
        assert_eq!(parsed("test --only clippy,format"), chosen);
        assert_eq!(parsed("test --only=format,clippy,format"), chosen);
    }

    #[test]
    fn everything_after_sim_belongs_to_the_simulation() {
        let args = ["--seeds", "7", "--help"].map(String::from).to_vec();
        assert_eq!(parsed("sim --seeds 7 --help"), Ok(Task::Sim { args }));
    }

    #[test]
    fn soak_starts_at_the_seed_given() {
        let parts = soak::part_names();
        assert_eq!(parsed("soak"), Ok(Task::Soak { parts: parts.clone(), start: SOAK_START }));
        assert_eq!(parsed("soak --start 9"), Ok(Task::Soak { parts, start: 9 }));
        assert_eq!(parsed("soak --only sim"), Ok(Task::Soak { parts: vec!["sim"], start: SOAK_START }));
    }

    #[test]
    fn engines_go_up_by_name_or_all_and_down_together() {
        assert_eq!(parsed("engines up"), Ok(Task::EnginesUp { engines: Engine::ALL.to_vec() }));
        assert_eq!(parsed("engines up mariadb"), Ok(Task::EnginesUp { engines: vec![Engine::Mariadb] }));
        assert_eq!(parsed("engines up cassandra"), Ok(Task::EnginesUp { engines: vec![Engine::Cassandra] }));
        assert_eq!(parsed("engines down"), Ok(Task::EnginesDown));
    }

    #[test]
    fn pictures_and_behaviours_take_no_options() {
        assert_eq!(parsed("pictures"), Ok(Task::Pictures));
        assert_eq!(parsed("behaviours"), Ok(Task::Behaviours));
        assert!(parsed("pictures now").is_err());
    }

    #[test]
    fn bench_names_an_engine_and_passes_its_options_on() {
        let args = ["--n", "500", "--only", "idle", "--json"].map(String::from).to_vec();
        assert_eq!(
            parsed("bench sqlite --json --only idle --n=500"),
            Ok(Task::Bench { engine: "sqlite", server: None, args })
        );
        let args = ["--serve", "60"].map(String::from).to_vec();
        assert_eq!(
            parsed("bench sqlite --serve 60"),
            Ok(Task::Bench { engine: "sqlite", server: None, args })
        );
        let args = ["--pin", "300"].map(String::from).to_vec();
        let server = Some(Engine::Mariadb);
        assert_eq!(parsed("bench mysql --pin 300"), Ok(Task::Bench { engine: "mysql", server, args }));
    }

    #[test]
    fn mistakes_are_refused_with_the_word_that_is_wrong() {
        for (line, wrong) in [
            ("tets", "`tets`"),
            ("test --fast", "`--fast`"),
            ("test now", "`now`"),
            ("test --only", "--only needs a value"),
            ("test --only fromat", "`fromat`; the steps are format, "),
            ("test --only format --only clippy", "given twice"),
            ("test --list=yes", "--list takes no value"),
            ("soak --start soon", "`soon`"),
            ("engines", "`up` or `down`"),
            ("engines sideways", "`sideways`"),
            (
                "engines up oracle",
                "`oracle`; there is postgres, postgres-18, pgbouncer, mariadb, zookeeper, kafka, cassandra",
            ),
            ("engines down postgres", "`postgres`"),
            ("bench", "needs an engine: sqlite, postgres, mysql, zookeeper, kafka, cassandra"),
            ("bench oracle", "`oracle`"),
            ("bench sqlite --n -1", "`-1`"),
            ("bench sqlite --fast", "`--fast`"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(wrong), "{line}: {message}");
        }
    }
}
