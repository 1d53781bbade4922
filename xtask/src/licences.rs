//! Checks the dependencies: each needs an allowed licence, and must come from crates.io.
//!
//! Security advisories are not checked: their list would have to be fetched at every run, which is not
//! possible everywhere the gate runs, and a new advisory would break a build in which nothing changed. Check
//! by hand: `cargo deny check advisories`.

use std::collections::BTreeSet;

use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::run::{Invocation, say};

/// The allowed licences. A licence that no dependency needs is an error. Encryption needs ISC (ring),
/// BSD-3-Clause (subtle, which compares secrets) and CDLA-Permissive-2.0 (webpki-roots, which is data): all
/// require only that their text is included.
const ALLOWED: &[&str] =
    &["MIT", "Apache-2.0", "BSD-3-Clause", "CDLA-Permissive-2.0", "ISC", "Unicode-3.0", "Zlib"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every package that any feature brings in. The error names those that fail.
pub(crate) fn check() -> Result<(), String> {
    let asked = Invocation::cargo(&["metadata", "--format-version", "1", "--all-features", "--locked"]);
    let said = asked.output().map_err(|error| format!("{asked}: {error}"))?;
    let tree: Value = serde_json::from_slice(&said).map_err(|error| format!("{asked}: {error}"))?;
    let packages = tree["packages"].as_array().ok_or_else(|| format!("{asked}: it names no packages"))?;
    let wrong: Vec<String> = packages.iter().filter_map(|package| fault(package, ALLOWED)).collect();
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    // A licence is needed if a package fails without it.
    let needed: BTreeSet<&str> = ALLOWED
        .iter()
        .filter(|licence| {
            let others: Vec<&str> = ALLOWED.iter().filter(|other| other != licence).copied().collect();
            packages.iter().any(|package| fault(package, &others).is_some())
        })
        .copied()
        .collect();
    say(&format!("{} packages; needed licences: {needed:?}", packages.len()));
    match ALLOWED.iter().find(|licence| !needed.contains(*licence)) {
        Some(licence) => {
            Err(format!("nothing needs the licence {licence} any more: take it out of the list"))
        }
        None => Ok(()),
    }
}

/// Returns the problem of a package; `None` if there is none.
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
