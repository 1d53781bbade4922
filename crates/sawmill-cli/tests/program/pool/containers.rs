//! Orders that name a container image, run by a real podman: K8.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::process::Signal;

use super::fixture::{Pool, TTL};
use crate::support::{Running, until};

/// A podman with its own storage and an image in it.
struct Podman {
    /// The program and its options, for --container.
    program: String,
}

/// Options that let containers run without network and init system.
const OPTIONS: &str = "--network=none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024";
const IMAGE: &str = "localhost/sawmill-test:1";

impl Podman {
    /// Prepares podman; without it the test is skipped with a notice.
    fn of(test: &str, folder: &Path) -> Option<Self> {
        match Self::make(folder) {
            Ok(podman) => Some(podman),
            Err(why) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
                sawmill_conformance::skipped(test, &why);
                None
            }
        }
    }

    fn make(folder: &Path) -> Result<Self, String> {
        // One test installs it; the others wait.
        static HAD: LazyLock<Result<(), String>> = LazyLock::new(sawmill_servers::podman);
        HAD.clone()?;
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let busybox = busybox.ok_or("there is no busybox; Debian has it as busybox-static")?;
        let root = folder.join("image");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::create_dir_all(root.join("tmp")).unwrap();
        for name in ["busybox", "sh", "echo", "sleep", "env"] {
            std::fs::copy(busybox, root.join("bin").join(name)).unwrap();
        }
        let tar = folder.join("image.tar");
        let packed = Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&root).arg(".").status();
        if !packed.is_ok_and(|status| status.success()) {
            return Err("tar cannot make the image".to_owned());
        }
        let (storage, run) = (folder.join("storage"), folder.join("run"));
        let program = format!(
            "podman --root {} --runroot {} --runtime runc --cgroup-manager=cgroupfs --storage-driver=vfs --events-backend=file",
            storage.display(),
            run.display()
        );
        let podman = Self { program };
        podman.run(&["import", tar.to_str().unwrap(), IMAGE])?;
        let mut try_it: Vec<&str> = vec!["run", "--rm"];
        try_it.extend(OPTIONS.split(' '));
        try_it.extend([IMAGE, "/bin/echo", "ready"]);
        podman.run(&try_it)?;
        Ok(podman)
    }

    fn run(&self, args: &[&str]) -> Result<String, String> {
        let mut words = self.program.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = command.args(words).args(args).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("podman cannot be run: {error}; Debian has it"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("podman {args:?} fails: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn start(&self, pool: &Pool, number: u32, more: &[&str]) -> Running {
        let mut args = vec!["--ttl", TTL, "--container", &self.program];
        if !more.contains(&"--container-options") {
            args.extend(["--container-options", OPTIONS]);
        }
        args.extend(more);
        Running::start(&mut pool.instance(number, &args))
    }

    /// Counts the containers, running or not.
    fn containers(&self) -> usize {
        self.run(&["ps", "--all", "--quiet"]).unwrap().lines().count()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "--all", "--force", "--time", "0"]);
        let _ = self.run(&["rmi", "--all", "--force"]);
    }
}

#[test]
fn k8_an_order_is_a_container_image_with_environment_pairs() {
    let test = "k8_an_order_is_a_container_image_with_environment_pairs";
    let Some(pool) = Pool::of(test) else { return };
    let Some(podman) = Podman::of(test, pool.place.folder()) else { return };
    let order = |script: &str| {
        serde_json::json!({"image": IMAGE, "args": ["/bin/sh", "-c", script], "env": {"SIZE": "5 0%"}})
            .to_string()
    };
    // Its stdout becomes the stdout of the instance.
    pool.send(&[&order("echo \"<$SIZE> ${SAWMILL_ID:+with} ${KAFKA_BROKERS:-nothing else}\"")]);
    assert_eq!(podman.start(&pool, 1, &[]).wait().ok(), "<5 0%> with nothing else\n");
    assert_eq!(pool.status()["done"].as_u64(), Some(1));

    // Its exit code decides, and its stderr is kept.
    pool.send(&[&order("echo no paper >&2; exit 65")]);
    podman.start(&pool, 1, &[]).wait().ok();
    let dead = pool.dead();
    assert!(dead.contains("no paper"), "{dead}");

    // A container that exceeds its time limit is ended, even if it ignores SIGTERM.
    pool.send(&[&order("trap '' TERM; sleep 600")]);
    podman.start(&pool, 1, &["--timeout", "2s", "--retries", "0"]).wait().ok();
    until("no container is left", || podman.containers() == 0);

    // A container whose instance is killed ends too, and the order runs again.
    let shared = pool.place.path("shared");
    std::fs::create_dir(&shared).unwrap();
    let mount = format!("{OPTIONS} --volume {}:/shared", shared.display());
    let twice = order("if [ -e /shared/begun ]; then echo again; else echo > /shared/begun; sleep 600; fi");
    pool.send(&[&twice]);
    let instance = podman.start(&pool, 1, &["--container-options", &mount]);
    until("it runs", || shared.join("begun").exists());
    instance.signal(Signal::KILL);
    until("no container is left", || podman.containers() == 0);
    assert_eq!(podman.start(&pool, 1, &["--container-options", &mount]).wait().ok(), "again\n");
}

#[test]
fn k8_an_image_without_a_container_program_is_an_error_that_says_so() {
    let test = "k8_an_image_without_a_container_program_is_an_error_that_says_so";
    let Some(pool) = Pool::of(test) else { return };
    let nothing = pool.place.path("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let bare = |args: &[&str]| {
        let mut command = pool.instance(1, args);
        Running::start(command.env("PATH", &nothing)).wait()
    };
    bare(&["--accept", "image"]).fails(2, &["install docker or podman", "--container"]);
    bare(&["--container", "no-such-docker"]).fails(2, &["--container", "no-such-docker"]);
    pool.send(&[r#"{"image": "resize:2"}"#]);
    bare(&["--retries", "0", "--ttl", TTL]).ok();
    let dead = pool.dead();
    assert!(dead.contains("install docker or podman"), "{dead}");
}
