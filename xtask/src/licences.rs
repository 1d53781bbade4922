//! What the dependencies may be: under a licence that fits, and from the usual registry.
//!
//! Known holes in them (advisories) are not looked for: their list would have to be fetched at every run, which is not possible
//! everywhere the gate runs, and a new one would break a build in which nothing changed. Ask by hand: `cargo deny check advisories`.

use std::collections::BTreeSet;

use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::run::{Invocation, say};

/// Only what the tree needs; one that nothing needs any more is to be taken out. Encryption needs ISC (ring), BSD-3-Clause
/// (subtle, which compares secrets) and CDLA-Permissive-2.0 (webpki-roots, which is data): all ask for no more than their text.
const FIT: &[&str] =
    &["MIT", "Apache-2.0", "BSD-3-Clause", "CDLA-Permissive-2.0", "ISC", "Unicode-3.0", "Zlib"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Looks at every package that any feature brings in. The error names those that do not fit.
pub(crate) fn check() -> Result<(), String> {
    let asked = Invocation::cargo(&["metadata", "--format-version", "1", "--all-features", "--locked"]);
    let said = asked.output().map_err(|error| format!("{asked}: {error}"))?;
    let tree: Value = serde_json::from_slice(&said).map_err(|error| format!("{asked}: {error}"))?;
    let packages = tree["packages"].as_array().ok_or_else(|| format!("{asked}: it names no packages"))?;
    let wrong: Vec<String> = packages.iter().filter_map(|package| fault(package, FIT)).collect();
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    // A licence is needed if without it something does not fit.
    let needed: BTreeSet<&str> = FIT
        .iter()
        .filter(|licence| {
            let others: Vec<&str> = FIT.iter().filter(|other| other != licence).copied().collect();
            packages.iter().any(|package| fault(package, &others).is_some())
        })
        .copied()
        .collect();
    say(&format!("{} packages; needed licences: {needed:?}", packages.len()));
    match FIT.iter().find(|licence| !needed.contains(*licence)) {
        Some(licence) => {
            Err(format!("nothing needs the licence {licence} any more: take it out of the list"))
        }
        None => Ok(()),
    }
}

/// What is wrong with a package, if something is.
fn fault(package: &Value, fit: &[&str]) -> Option<String> {
    let text = |field: &str| package[field].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    if !package["source"].is_null() && text("source") != REGISTRY {
        return Some(format!("{name} comes from {}", text("source")));
    }
    let licence = text("license");
    let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
        return Some(format!("{name} has a licence that cannot be read: {licence:?}"));
    };
    let fits = expression.evaluate(|asked| {
        asked.license.id().is_some_and(|id| fit.contains(&id.name)) && asked.addition.is_none()
    });
    (!fits).then(|| format!("{name} has the licence {licence}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let package = |licence: &str, source: Value| {
            fault(
                &json!({"name": "a", "version": "1.0.0", "license": licence, "source": source}),
                &["MIT", "Zlib"],
            )
        };
        for good in ["MIT", "Apache-2.0 OR MIT", "MIT/Apache-2.0", "MIT AND Zlib"] {
            assert_eq!(package(good, json!(REGISTRY)), None);
        }
        assert_eq!(package("MIT", Value::Null), None, "one of our own");
        for bad in
            ["GPL-3.0-only", "MIT AND Apache-2.0", "", "whatever I like", "MIT WITH Classpath-exception-2.0"]
        {
            assert!(package(bad, json!(REGISTRY)).is_some_and(|said| said.starts_with("a 1.0.0 ")), "{bad}");
        }
        assert!(package("MIT", json!("git+https://example.org")).is_some_and(|said| said.contains("git+")));
    }
}
