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
    check_among(ENGINES, url)
}

fn check_among(engines: &[(&str, &str, bool)], url: &str) -> Result<(), Failure> {
    let scheme = url.split(':').next().unwrap_or_default();
    match engines.iter().find(|(of, _, built_in)| *of == scheme && !built_in) {
        None => Ok(()),
        Some((_, feature, _)) => Err(Failure::usage(format!(
            "this program was built without the engine for {scheme}: URLs; build it with `--features {feature}`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_an_engine_that_was_left_out_is_named_with_the_feature_that_brings_it() {
        let engines = &[("sqlite", "sqlite", true), ("mysql", "sql", false)];
        assert!(check_among(engines, "sqlite:x.db").is_ok());
        assert!(check_among(engines, "unknown:x").is_ok(), "that is for the library to say");
        let failure = check_among(engines, "mysql://u:secret@h/d").unwrap_err();
        assert_eq!(failure.code(), crate::failure::Code::Usage);
        let said = failure.to_string();
        assert!(
            said.contains("mysql") && said.contains("--features sql") && !said.contains("secret"),
            "{said}"
        );
    }
}
