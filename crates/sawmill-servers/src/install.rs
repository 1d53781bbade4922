//! Gets programs that are missing: Debian's packages, installed or only unpacked, archives from Maven, and
//! Python packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{run, we_are_root};

/// While this file exists, the package of PostgreSQL creates no cluster, and so starts no service.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/sawmill.conf";

/// Installs packages, if there is apt-get and we are root.
pub(crate) fn packages(names: &[&str]) -> Result<(), String> {
    let by_hand = format!("install {} by hand", names.join(" and "));
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(format!("it is not installed, and there is no apt-get here; {by_hand}"));
    }
    if !we_are_root() {
        return Err(format!("it is not installed, and only root can do that; {by_hand}"));
    }
    eprintln!("installing {}", names.join(", "));
    run("apt-get update", apt_get().arg("update"))?;
    run("apt-get install", apt_get().args(["install", "-y", "--no-install-recommends"]).args(names))
}

/// The folders that are searched for programs.
const FOLDERS: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

fn find_program(program: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists())
}

/// Installs podman if it is missing, with a runtime for containers and a busybox to make an image of.
pub fn podman() -> Result<(), String> {
    const WANTED: [(&str, &str); 3] = [("podman", "podman"), ("runc", "runc"), ("busybox", "busybox-static")];
    let lacking: Vec<&str> = WANTED
        .iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if lacking.is_empty() { Ok(()) } else { packages(&lacking) }
}

/// Returns the path of Chromium, installed if it is missing.
pub fn chromium() -> Result<PathBuf, String> {
    const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let there = || NAMES.into_iter().find_map(find_program);
    if there().is_none() {
        packages(&["chromium"])?;
    }
    there().ok_or_else(|| "the package chromium has no chromium".to_owned())
}

/// Returns a folder with these Python packages and their dependencies, for `PYTHONPATH`.
pub fn python(name: &str, wanted: &[&str]) -> Result<PathBuf, String> {
    cached(name, |folder| {
        let pip = || {
            let mut python = Command::new("python3");
            python.args(["-m", "pip"]);
            python
        };
        if run("pip", pip().arg("--version")).is_err() {
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
        run("pip", install.arg(folder).args(wanted))
    })
}

/// Installs PostgreSQL without the service that its package would set up.
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

/// A command that runs apt-get under a lock: apt-get itself does not wait for the lock on its lists.
fn apt_get() -> Command {
    let mut command = Command::new("flock");
    command.arg(std::env::temp_dir().join("sawmill-apt.lock"));
    command.args(["apt-get", "-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=600"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

const MAVEN: &str = "https://repo1.maven.org/maven2";

/// A jar in Maven's archive that contains another archive, with programs.
pub(crate) struct Archive {
    /// One word, with the version.
    pub(crate) name: &'static str,
    pub(crate) url: &'static str,
    /// The expected checksum of the jar.
    pub(crate) sha256: &'static str,
    pub(crate) inner: &'static str,
}

/// Returns the folder with the unpacked archive, fetched on first use.
pub(crate) fn archive(archive: &Archive) -> Result<PathBuf, String> {
    cached(archive.name, |folder| {
        let jar = folder.join("jar");
        eprintln!("fetching {}", archive.url);
        let mut fetch = Command::new("curl");
        fetch.args(["-fsSL", "--retry", "3", "--max-time", "300", "-o"]).arg(&jar).arg(archive.url);
        run("curl", &mut fetch)?;
        let mut sum = Command::new("sha256sum");
        let said = sum.arg(&jar).output().map_err(|error| format!("sha256sum: {error}"))?;
        if !said.stdout.starts_with(archive.sha256.as_bytes()) {
            return Err(format!("{} has changed: its SHA-256 is not the expected one", archive.url));
        }
        let unzip = Command::new("unzip").arg("-q").arg(&jar).arg(archive.inner).current_dir(folder).output();
        if !unzip.is_ok_and(|unzip| unzip.status.success()) {
            run("jar", Command::new("jar").arg("xf").arg(&jar).arg(archive.inner).current_dir(folder))?;
        }
        run("tar", Command::new("tar").args(["-xJf", archive.inner]).current_dir(folder))?;
        for unneeded in [&jar, &folder.join(archive.inner)] {
            fs::remove_file(unneeded).map_err(|error| format!("{}: {error}", unneeded.display()))?;
        }
        Ok(())
    })
}

/// Returns a folder with these jars from Maven's archive, fetched on first use. Each line of the list has the
/// SHA-256 and the path of a jar.
pub(crate) fn jars(name: &str, list: &str) -> Result<PathBuf, String> {
    cached(name, |folder| {
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
        run("curl", fetch.current_dir(folder))?;
        let mut check = Command::new("sha256sum");
        let checked = run("sha256sum", check.args(["--check", "--quiet"]).arg(&expected).current_dir(folder));
        checked.map_err(|why| format!("a jar has changed: {why}"))
    })
}

/// Returns a folder with the contents of Debian's packages, unpacked but not installed. This sets up no
/// service and does not need root.
pub(crate) fn unpacked(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    cached(name, |folder| {
        eprintln!("fetching {}", packages.join(", "));
        let mut fetch = apt_get();
        if let Err(why) = run("apt-get download", fetch.arg("download").args(packages).current_dir(folder)) {
            if !we_are_root() {
                return Err(format!("{why}; install {} by hand", packages[0]));
            }
            run("apt-get update", apt_get().arg("update"))?;
            run("apt-get download", apt_get().arg("download").args(packages).current_dir(folder))?;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                run("dpkg", Command::new("dpkg").arg("-x").arg(&path).arg(folder))?;
            }
        }
        Ok(())
    })
}

/// Returns a folder of programs that is kept between runs, for all users. It is filled elsewhere and then
/// renamed, so the folder is always complete.
fn cached(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let all = std::env::temp_dir().join("sawmill-programs");
    let place = all.join(name);
    if place.exists() {
        return Ok(place);
    }
    let draft = all.join(format!("{name}-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::create_dir_all(&draft).map_err(|error| format!("{}: {error}", draft.display()))?;
    let filled =
        fill(&draft).and_then(|()| run("chmod", Command::new("chmod").args(["-R", "a+rX"]).arg(&draft)));
    if filled.is_ok() && fs::rename(&draft, &place).is_ok() {
        return Ok(place);
    }
    // Filling it failed, or another process was faster.
    let _ = fs::remove_dir_all(&draft);
    filled.map(|()| place)
}
