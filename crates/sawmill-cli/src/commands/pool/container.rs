//! Orders that name an image. The container program of this machine runs them, with the operator's options.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use sawmill::engine::runtime::Env;
use tokio::process::Command;

use super::command_line;
use crate::commands::work::program::Program;
use crate::failure::Failure;

/// The programs to look for if none is given.
const PROGRAMS: [&str; 2] = ["docker", "podman"];
/// The time limit for removing an old container.
const REMOVAL: Duration = Duration::from_secs(30);

/// The program that runs containers.
#[derive(Debug)]
pub(super) struct Containers {
    /// The program and its options.
    program: Program,
    /// The options for each container.
    options: Vec<OsString>,
}

impl Containers {
    /// Finds the given program, or one of the usual ones if none is given. Returns none if there is none.
    pub(super) fn find(program: Option<&str>, options: Option<&str>) -> Result<Option<Self>, Failure> {
        let split = |name: &str, text: &str| {
            let words = command_line::split(text)
                .map_err(|error| Failure::usage(format!("{name} {text:?}: {error}")))?;
            Ok::<_, Failure>(words.into_iter().map(OsString::from).collect::<Vec<_>>())
        };
        let options = options.map_or(Ok(Vec::new()), |options| split("--container-options", options))?;
        let program = match program {
            Some(text) => {
                let words = split("--container", text)?;
                Some(Program::find(&words).map_err(|failure| failure.at("--container"))?)
            }
            None => PROGRAMS.iter().find_map(|name| Program::find(&[OsString::from(name)]).ok()),
        };
        Ok(program.map(|program| Self { program, options }))
    }

    /// Returns the command that runs a container with this name.
    pub(super) fn run(&self, name: &str, image: &str, args: &[String], env: &[(String, String)]) -> Program {
        let mut words: Vec<OsString> =
            ["run", "--rm", "--interactive", "--name", name].map(OsString::from).into();
        words.extend(self.options.iter().cloned());
        for (name, value) in env {
            words.push("--env".into());
            words.push(format!("{name}={value}").into());
        }
        words.push(image.into());
        words.extend(args.iter().map(OsString::from));
        self.with(words)
    }

    /// Returns the command that ends and removes the container with this name, if it exists.
    pub(super) fn removal(&self, name: &str) -> Program {
        self.with(["rm", "--force", name].map(OsString::from))
    }

    /// Removes the container of an earlier worker on this machine whose minder is gone too.
    pub(super) async fn remove(&self, name: &str, env: &Env) {
        let program = self.removal(name);
        let mut command = Command::new(&program.path);
        command.args(&program.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It fails if there is no such container, which is the usual case.
        let _ = env.within(REMOVAL, command.kill_on_drop(true).status()).await;
    }

    fn with(&self, words: impl IntoIterator<Item = OsString>) -> Program {
        let args = self.program.args.iter().cloned().chain(words).collect();
        Program { path: self.program.path.clone(), args }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k8_the_users_own_options_stand_where_they_belong() {
        let containers =
            Containers::find(Some("sh --runtime 'my runc'"), Some("--network=none -m 1g")).unwrap();
        let run =
            containers.unwrap().run("n", "img", &["-x".to_owned()], &[("A".to_owned(), "b c".to_owned())]);
        let words: Vec<&str> = run.args.iter().map(|word| word.to_str().unwrap()).collect();
        let expected =
            "--runtime|my runc|run|--rm|--interactive|--name|n|--network=none|-m|1g|--env|A=b c|img|-x";
        assert_eq!(words.join("|"), expected);
    }

    #[test]
    fn k8_a_container_program_that_is_not_there_is_said() {
        let error = Containers::find(Some("no-such-program"), None).unwrap_err().to_string();
        assert!(error.contains("--container") && error.contains("no-such-program"), "{error}");
        let error = Containers::find(None, Some("'x")).unwrap_err().to_string();
        assert!(error.contains("--container-options"), "{error}");
    }
}
