//! A single ZooKeeper server.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::java::JavaServer;
use crate::process::{connected, write_private};

const SERVER: JavaServer = JavaServer {
    name: "zookeeper-3.9.4",
    jars: include_str!("../jars/zookeeper.txt"),
    versions: 8..=u32::MAX,
    options: &["-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"],
};

/// Sessions may be as short as two ticks, and longer than a restart takes on a busy machine. Syncs to disk
/// before it answers, which is the default. Tests may ask whether it serves (`srvr`), and for its sessions
/// (`dump`).
const SETTINGS: &str = "\
tickTime=500\n\
maxSessionTimeout=60000\n\
clientPortAddress=127.0.0.1\n\
maxClientCnxns=0\n\
admin.enableServer=false\n\
4lw.commands.whitelist=srvr,dump\n";

pub(crate) fn programs() -> Result<PathBuf, String> {
    SERVER.programs()
}

/// Writes the configuration. Tests may edit it before a restart.
pub(crate) fn prepare(folder: &Path, port: u16) -> Result<(), String> {
    let data = folder.join("data");
    write_private(
        &folder.join("zoo.cfg"),
        &format!("{SETTINGS}clientPort={port}\ndataDir={}\n", data.display()),
    )
}

/// Starts it and returns its process id.
pub(crate) fn launch(jars: &Path, folder: &Path, port: u16) -> Result<(u32, Option<Child>), String> {
    let mut java = SERVER.program(jars, folder)?;
    java.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(folder.join("zoo.cfg"));
    SERVER.launch(java, folder, |_| serves(port).unwrap_or(false))
}

/// Returns whether it serves. It accepts connections, but does not serve, while it reads its data.
fn serves(port: u16) -> io::Result<bool> {
    let mut stream = connected(port)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
    stream.write_all(b"srvr")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said.contains("Mode: "))
}
