//! The engines that this program was built with: the one place that names them.

use sawmill::{OpenOptions, Sawmill};

use crate::failure::Failure;

/// URL schemes, and the feature that brings the engine for each.
const ENGINES: &[(&str, &str, bool)] = &[("sqlite", "sqlite", cfg!(feature = "sqlite"))];

/// How to open a store, with every engine that is there.
pub(crate) fn options() -> OpenOptions {
    let options = Sawmill::options();
    #[cfg(feature = "sqlite")]
    let options = options.engine(sawmill_sqlite::SqliteEngine);
    options
}

/// Refuses the URL of an engine that was left out when the program was built.
pub(crate) fn check(url: &str) -> Result<(), Failure> {
    let scheme = url.split(':').next().unwrap_or_default();
    match ENGINES.iter().find(|(of, _, built_in)| *of == scheme && !built_in) {
        None => Ok(()),
        Some((_, feature, _)) => Err(Failure::usage(format!(
            "this program was built without the engine for {scheme}: URLs; build it with `--features {feature}`"
        ))),
    }
}

/// The version of the store's tables; none if the store is not there yet, or has no such thing.
pub(crate) fn schema(url: &str) -> Result<Option<u32>, Failure> {
    match url.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) => Ok(sawmill_sqlite::schema_version(std::path::Path::new(path))?),
        _ => Ok(None),
    }
}
