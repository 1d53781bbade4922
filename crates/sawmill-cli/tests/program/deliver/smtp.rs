//! A real SMTP server in Python, based on aiosmtpd.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

use super::authority::Certified;
use crate::support::{Place, until};

pub(crate) struct Smtp {
    place: Place,
    child: Child,
    pub(crate) port: String,
}

impl Smtp {
    /// Starts a server with this encryption. Without Python and aiosmtpd the test is skipped with a notice.
    pub(crate) fn start(test: &str, mode: &str, certified: Option<&Certified>) -> Option<Self> {
        // One test installs it; the others wait.
        static LIBRARY: LazyLock<Result<PathBuf, String>> =
            LazyLock::new(|| sawmill_servers::python("aiosmtpd-1.4.6", &["aiosmtpd==1.4.6"]));
        let library = match &*LIBRARY {
            Ok(library) => library,
            Err(why) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
                sawmill_conformance::skipped(test, why);
                return None;
            }
        };
        let place = Place::new();
        let script = place.write("smtp.py", include_str!("smtp.py"));
        if let Some(certified) = certified {
            place.write("server.pem", &certified.pem());
        }
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", library).arg(script).arg(place.folder()).arg(mode);
        let log = std::fs::File::create(place.path("log")).unwrap();
        let child = python.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Self { place, child, port: String::new() };
        until("the SMTP server is there", || {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "it has ended: {}", server.place.read("log"));
            server.port = server.place.read("port");
            !server.port.is_empty()
        });
        Some(server)
    }

    /// Returns the accepted e-mails.
    pub(crate) fn mails(&self) -> Vec<Value> {
        self.place.read("mails").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Smtp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
