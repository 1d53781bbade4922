//! Servers that run on Java: finds Java, fetches the jars of a server, and starts it.

use std::fs::{self, File};
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::install;
use crate::process::{unprivileged, wait};
use crate::running::children;

/// The package with a Java that suits all servers here.
const PACKAGE: &str = "openjdk-17-jre-headless";

/// Where Debian installs each version.
const VERSIONS: &str = "/usr/lib/jvm";

/// A server that runs on Java.
pub(crate) struct JavaServer {
    /// One word, with the version.
    pub(crate) name: &'static str,
    /// Its jars and their dependencies: a line each, with the SHA-256 and the path in Maven's archive.
    pub(crate) jars: &'static str,
    /// The versions of Java on which it runs.
    pub(crate) versions: RangeInclusive<u32>,
    /// The options of the JVM.
    pub(crate) options: &'static [&'static str],
}

impl JavaServer {
    /// Returns the folder with its jars, fetched if they are missing. Fails first if there is no Java.
    pub(crate) fn programs(&self) -> Result<PathBuf, String> {
        self.java()?;
        install::jars(self.name, self.jars)
    }

    /// A command that runs a program of its jars, as another user if we are root. Temporary files go to the
    /// folder.
    pub(crate) fn program(&self, jars: &Path, folder: &Path) -> Result<Command, String> {
        let mut java = unprivileged(&self.java()?);
        java.current_dir(folder).stdin(Stdio::null());
        java.args(self.options).arg(format!("-Djava.io.tmpdir={}", folder.display()));
        java.arg("-cp").arg(jars.join("*"));
        Ok(java)
    }

    /// Starts it, waits until it is ready, and returns its process id. Its output goes to the log.
    pub(crate) fn launch(
        &self,
        mut java: Command,
        folder: &Path,
        ready: impl Fn(&str) -> bool,
    ) -> Result<(u32, Option<Child>), String> {
        let log = folder.join("log");
        let with_path = |error| format!("{}: {error}", log.display());
        let printed = File::options().create(true).append(true).open(&log).map_err(with_path)?;
        // Ignore the output of earlier runs.
        let earlier = fs::metadata(&log).map_err(with_path)?.len() as usize;
        java.stdout(printed.try_clone().map_err(with_path)?).stderr(printed);
        // Ctrl-C at our terminal must not reach it.
        let mut server = java.process_group(0).spawn().map_err(|error| format!("java: {error}"))?;
        wait(&mut server, &log, || {
            let text = fs::read(&log)?;
            let said = String::from_utf8_lossy(text.get(earlier..).unwrap_or_default());
            if ready(&said) { Ok(()) } else { Err(std::io::ErrorKind::NotConnected.into()) }
        })?;
        // As root, our child is `runuser`, and the server is its child.
        let pid = children(server.id()).first().copied().unwrap_or(server.id());
        Ok((pid, Some(server)))
    }

    /// Finds a Java that suits, and installs one if there is none.
    fn java(&self) -> Result<PathBuf, String> {
        let fitting = || installed().into_iter().find(|java| version(java).is_some_and(|is| self.suits(is)));
        if let Some(java) = fitting() {
            return Ok(java);
        }
        install::packages(&[PACKAGE]).map_err(|why| format!("it needs {}: {why}", self.wanted()))?;
        fitting().ok_or_else(|| format!("it needs {}, which is not found", self.wanted()))
    }

    fn suits(&self, version: u32) -> bool {
        self.versions.contains(&version)
    }

    fn wanted(&self) -> String {
        match (self.versions.start(), self.versions.end()) {
            (first, last) if first == last => format!("Java {first}"),
            (first, &u32::MAX) => format!("Java {first} or newer"),
            (first, last) => format!("Java {first} to {last}"),
        }
    }
}

/// The Java programs from `JAVA_HOME`, the PATH, and Debian's folder.
fn installed() -> Vec<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = home.into_iter().collect();
    found.extend(std::env::split_paths(&path).map(|folder| folder.join("java")));
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    found.extend(versions.map(|version| version.path().join("bin/java")));
    found.retain(|java| java.exists());
    found
}

/// The version that `java -version` reports.
fn version(java: &Path) -> Option<u32> {
    let said = Command::new(java).arg("-version").stdin(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&said.stderr))
}

/// Old versions are numbered 1.x.
fn version_in(said: &str) -> Option<u32> {
    let mut numbers = said.split('"').nth(1)?.split(['.', '-', '_', '+']);
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        version => Some(version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_says_its_version_in_several_ways() {
        for (said, version) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK", Some(17)),
            ("java version \"1.8.0_292\"", Some(8)),
            ("openjdk version \"25-ea\" 2025-09-16", Some(25)),
            ("openjdk version \"21\"", Some(21)),
            ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
            ("", None),
        ] {
            assert_eq!(version_in(said), version, "{said}");
        }
    }

    #[test]
    fn a_server_says_which_java_it_needs() {
        let server = |versions| JavaServer { name: "none", jars: "", versions, options: &[] };
        assert_eq!(server(17..=17).wanted(), "Java 17");
        assert_eq!(server(17..=u32::MAX).wanted(), "Java 17 or newer");
        assert_eq!(server(8..=17).wanted(), "Java 8 to 17");
        let none = server(1..=1);
        assert!(!none.suits(17) && installed().iter().all(|java| version(java) != Some(1)));
    }
}
