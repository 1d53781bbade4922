//! The engines that this program was built with. No other file names them.

use sawmill::{OpenOptions, Sawmill};

use crate::failure::Failure;

/// An engine that the program can be built with.
struct Built {
    scheme: &'static str,
    feature: &'static str,
    is_in: bool,
}

const ENGINES: &[Built] = &[
    Built { scheme: "sqlite", feature: "sqlite", is_in: cfg!(feature = "sqlite") },
    Built { scheme: "postgres", feature: "postgres", is_in: cfg!(feature = "postgres") },
    Built { scheme: "mysql", feature: "mysql", is_in: cfg!(feature = "mysql") },
    Built { scheme: "zookeeper", feature: "zookeeper", is_in: cfg!(feature = "zookeeper") },
    Built { scheme: "kafka", feature: "kafka", is_in: cfg!(feature = "kafka") },
    Built { scheme: "cassandra", feature: "cassandra", is_in: cfg!(feature = "cassandra") },
];

/// Returns options for opening a store with the engines that were compiled in.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options()
}

/// Refuses the URL of an engine that was left out when the program was built.
pub(crate) fn check(url: &str) -> Result<(), Failure> {
    check_among(ENGINES, url)
}

fn check_among(engines: &[Built], url: &str) -> Result<(), Failure> {
    let scheme = url.split(':').next().unwrap_or_default();
    match engines.iter().find(|engine| engine.scheme == scheme && !engine.is_in) {
        None => Ok(()),
        Some(engine) => Err(Failure::usage(format!(
            "this program was built without the engine for {scheme}: URLs; build it with `--features {}`",
            engine.feature
        ))),
    }
}

/// Returns the schema version; none if the store does not exist or its engine has no schema version.
#[cfg_attr(
    not(feature = "mysql"),
    allow(unused_variables, reason = "the schema of SQLite is shared by all namespaces")
)]
pub(crate) async fn schema(url: &str, namespace: Option<&str>) -> Result<Option<u32>, Failure> {
    match url.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) => Ok(sawmill_sqlite::schema_version(std::path::Path::new(path))?),
        #[cfg(feature = "mysql")]
        Some(("mysql", _)) => {
            let namespace = namespace.map_or(Ok(Default::default()), str::parse)?;
            Ok(sawmill_mysql::schema_version(url, &namespace).await?)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_an_engine_that_was_left_out_is_named() {
        let engines = &[Built { scheme: "kafka", feature: "kafka", is_in: false }];
        let failure = check_among(engines, "kafka://user:secret@host:9092").unwrap_err().to_string();
        assert!(failure.contains("kafka:") && failure.contains("--features kafka"), "{failure}");
        assert!(!failure.contains("secret"), "{failure}");
        assert!(check_among(engines, "sqlite:x.db").is_ok());
    }
}
