//! A Kafka broker that is its own controller.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::java::JavaServer;
use crate::process::{connected, free_port, run, write_private};

const SERVER: JavaServer = JavaServer {
    name: "kafka-4.1.0",
    jars: include_str!("../jars/kafka.txt"),
    versions: 17..=u32::MAX,
    options: &["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC"],
};

/// A single replica, and no automatic creation of topics. The other values are small, for a quick start.
const SETTINGS: &str = "\
process.roles=broker,controller\n\
node.id=1\n\
controller.listener.names=CONTROLLER\n\
inter.broker.listener.name=PLAINTEXT\n\
auto.create.topics.enable=false\n\
default.replication.factor=1\n\
min.insync.replicas=1\n\
offsets.topic.replication.factor=1\n\
offsets.topic.num.partitions=1\n\
transaction.state.log.replication.factor=1\n\
transaction.state.log.min.isr=1\n\
transaction.state.log.num.partitions=1\n\
share.coordinator.state.topic.replication.factor=1\n\
share.coordinator.state.topic.min.isr=1\n\
share.coordinator.state.topic.num.partitions=1\n\
group.initial.rebalance.delay.ms=0\n\
controlled.shutdown.enable=false\n";

/// The id of the cluster: 22 letters, in Kafka's format.
const CLUSTER: &str = "c2F3bWlsbC10ZXN0cy0wMQ";

/// The line in its log once it is ready.
const READY: &str = "Kafka Server started";

/// Additions to a broker without passwords.
#[derive(Debug, Clone, Default)]
pub struct KafkaExtras {
    /// More listeners: a name in capitals, and a protocol (`SSL`, `SASL_PLAINTEXT`, `SASL_SSL`). Each gets a
    /// port of its own: see [`Server::port_of`](crate::Server::port_of).
    pub listeners: Vec<(String, String)>,
    /// Lines for its properties. They come last, so they override.
    pub properties: String,
    /// Users that exist from its first start, in the format of its own tool:
    /// `SCRAM-SHA-256=[name=alice,password=secret]`.
    pub scram: Vec<String>,
}

pub(crate) fn programs() -> Result<PathBuf, String> {
    SERVER.programs()
}

/// Creates its data, and returns the ports of its other listeners.
pub(crate) fn prepare(
    jars: &Path,
    folder: &Path,
    port: u16,
    extras: &KafkaExtras,
) -> Result<Vec<(String, u16)>, String> {
    let mut listeners = vec![format!("PLAINTEXT://127.0.0.1:{port}")];
    let mut protocols = vec!["PLAINTEXT:PLAINTEXT".to_owned(), "CONTROLLER:PLAINTEXT".to_owned()];
    let mut ports = Vec::new();
    for (name, protocol) in &extras.listeners {
        let port = free_port()?;
        listeners.push(format!("{name}://127.0.0.1:{port}"));
        protocols.push(format!("{name}:{protocol}"));
        ports.push((name.clone(), port));
    }
    let controller = free_port()?;
    let properties = folder.join("server.properties");
    write_private(
        &properties,
        &format!(
            "{SETTINGS}log.dirs={}\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners={listeners},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners={listeners}\n\
             listener.security.protocol.map={}\n{}\n",
            folder.join("data").display(),
            protocols.join(","),
            extras.properties,
            listeners = listeners.join(","),
        ),
    )?;
    let mut format = SERVER.program(jars, folder)?;
    format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(&properties);
    for user in &extras.scram {
        format.args(["--add-scram", user]);
    }
    run("formatting its storage", &mut format)?;
    Ok(ports)
}

/// Starts it and returns its process id.
pub(crate) fn launch(jars: &Path, folder: &Path, port: u16) -> Result<(u32, Option<Child>), String> {
    let mut java = SERVER.program(jars, folder)?;
    java.arg("kafka.Kafka").arg(folder.join("server.properties"));
    SERVER.launch(java, folder, |said| said.contains(READY) && connected(port).is_ok())
}
