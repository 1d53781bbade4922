//! A Cassandra node: alone, or one of three.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::java::JavaServer;
use crate::process::{connected_to, free_port, write_private};

const SERVER: JavaServer = JavaServer {
    name: "cassandra-5.0.6",
    jars: include_str!("../jars/cassandra.txt"),
    versions: 17..=17,
    options: &["-Xms1g", "-Xmx1g", "-XX:+UseSerialGC"],
};

/// The JDK packages that it needs, from its own start script.
const EXPORTS: &[&str] = &[
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];
const OPENS: &[&str] = &[
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
];

/// No waiting for other nodes: those of a ring are started one after another, and hold no data yet.
const OPTIONS: &[&str] = &[
    "-Dcassandra.ring_delay_ms=100",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Djdk.attach.allowAttachSelf=true",
];

const SETTINGS: &str = "\
cluster_name: sawmill\n\
num_tokens: 1\n\
partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
commitlog_sync: periodic\n\
commitlog_sync_period: 10000ms\n\
auto_bootstrap: false\n\
endpoint_snitch: SimpleSnitch\n";

/// Logs warnings and errors only.
const LOGBACK: &str = "\
<configuration>\n\
  <appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\n\
    <encoder><pattern>%d %level %logger{20} %msg%n</pattern></encoder>\n\
  </appender>\n\
  <root level=\"WARN\"><appender-ref ref=\"OUT\"/></root>\n\
</configuration>\n";

/// The ports of a node. All nodes of a ring use the same ports, each on an address of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) native: u16,
    storage: u16,
    ssl_storage: u16,
}

impl Ports {
    pub(crate) fn with_native(native: u16) -> Result<Self, String> {
        Ok(Self { native, storage: free_port()?, ssl_storage: free_port()? })
    }
}

pub(crate) fn programs() -> Result<PathBuf, String> {
    SERVER.programs()
}

/// Writes the configuration. Tests may edit it before a restart.
pub(crate) fn prepare(folder: &Path, host: Ipv4Addr, ports: Ports) -> Result<(), String> {
    let Ports { native, storage, ssl_storage } = ports;
    let data = folder.join("data");
    let at = |name: &str| data.join(name).display().to_string();
    write_private(
        &folder.join("cassandra.yaml"),
        &format!(
            "{SETTINGS}listen_address: {host}\nrpc_address: {host}\nnative_transport_port: {native}\nstorage_port: {storage}\nssl_storage_port: {ssl_storage}\n\
             data_file_directories: [{}]\ncommitlog_directory: {}\nsaved_caches_directory: {}\n\
             hints_directory: {}\ncdc_raw_directory: {}\n\
             seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
             parameters:\n      - seeds: 127.0.0.1:{storage}\n",
            at("data"),
            at("commitlog"),
            at("saved_caches"),
            at("hints"),
            at("cdc_raw"),
        ),
    )?;
    write_private(&folder.join("logback.xml"), LOGBACK)
}

/// Starts it and returns its process id.
pub(crate) fn launch(
    jars: &Path,
    folder: &Path,
    host: Ipv4Addr,
    port: u16,
) -> Result<(u32, Option<Child>), String> {
    let mut java = SERVER.program(jars, folder)?;
    for (option, packages) in [("--add-exports", EXPORTS), ("--add-opens", OPENS)] {
        java.args(packages.iter().map(|package| format!("{option}={package}=ALL-UNNAMED")));
    }
    java.args(OPTIONS).arg(format!("-Dlogback.configurationFile={}", folder.join("logback.xml").display()));
    java.arg(format!("-Dcassandra.config=file://{}", folder.join("cassandra.yaml").display()));
    java.arg(format!("-Dcassandra.storagedir={}", folder.join("data").display()));
    java.arg("org.apache.cassandra.service.CassandraDaemon");
    // It accepts connections once it is ready.
    SERVER.launch(java, folder, |_| connected_to(host, port).is_ok())
}
