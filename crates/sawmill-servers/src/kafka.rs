//! A Kafka broker that is its own controller.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::java::JavaServer;
use crate::process::{connected, done, free_port, give};

const SERVER: JavaServer = JavaServer {
    name: "kafka-4.1.0",
    jars: include_str!("../jars/kafka.txt"),
    versions: 17..=u32::MAX,
    options: &["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC"],
};

/// One broker holds every copy, and topics come by being created. The rest is small, so that it starts quickly.
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

/// One word of 22 letters, as Kafka writes ids.
const CLUSTER: &str = "c2F3bWlsbC10ZXN0cy0wMQ";

/// What it says when it can be used.
const READY: &str = "Kafka Server started";

/// More than a broker without passwords.
#[derive(Debug, Clone, Default)]
pub struct KafkaExtras {
    /// More places where it listens: a name in capitals, and a protocol (`SSL`, `SASL_PLAINTEXT`, `SASL_SSL`). Each gets a
    /// port of its own: see [`Server::port_of`](crate::Server::port_of).
    pub listeners: Vec<(String, String)>,
    /// Lines for its properties. They come last, so they override.
    pub properties: String,
    /// Users that it knows from its first start, as its own tool wants them:
    /// `SCRAM-SHA-256=[name=alice,password=secret]`.
    pub scram: Vec<String>,
}

pub(crate) fn programs() -> Result<PathBuf, String> {
    SERVER.programs()
}

/// Makes its data, and says at which ports its other listeners are.
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
    give(
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
    done("formatting its storage", &mut format)?;
    Ok(ports)
}

/// Starts it, and says which process it is.
pub(crate) fn launch(jars: &Path, folder: &Path, port: u16) -> Result<(u32, Option<Child>), String> {
    let mut java = SERVER.program(jars, folder)?;
    java.arg("kafka.Kafka").arg(folder.join("server.properties"));
    SERVER.launch(java, folder, |said| said.contains(READY) && connected(port).is_ok())
}
