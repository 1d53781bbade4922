//! Checks the direction of dependencies: between the crates, and between the modules of the library.
//!
//! ARCHITECTURE.md says why. Tests may use everything, and so may documentation.

use std::fs;
use std::path::Path;

use crate::run::say;

/// The paths that a part must not use.
struct Rule {
    /// A folder or a file of sources.
    part: &'static str,
    /// Paths that must not occur in it.
    forbidden: &'static [&'static str],
}

const RULES: &[Rule] = &[
    // The engine crate: runtime, then the model, then storage.
    Rule { part: "crates/sawmill-engine/src/runtime", forbidden: &["crate::model", "crate::storage"] },
    Rule { part: "crates/sawmill-engine/src/model", forbidden: &["crate::storage"] },
    // The library: telemetry, store, handler, worker, admin, client; and the test kit, which may use all.
    Rule {
        part: "crates/sawmill/src/telemetry",
        forbidden: &["crate::store", "crate::handler", "crate::worker", "crate::admin", "crate::client"],
    },
    Rule {
        part: "crates/sawmill/src/store",
        forbidden: &["crate::handler", "crate::worker", "crate::admin", "crate::client"],
    },
    Rule {
        part: "crates/sawmill/src/handler",
        forbidden: &["crate::worker", "crate::admin", "crate::client"],
    },
    Rule { part: "crates/sawmill/src/worker", forbidden: &["crate::admin", "crate::client"] },
    Rule { part: "crates/sawmill/src/admin", forbidden: &["crate::worker", "crate::client"] },
    // Within the worker: what is in flight is plain state, and handlers are run without knowing who claims.
    Rule {
        part: "crates/sawmill/src/worker/inflight",
        forbidden: &[
            "crate::worker::run",
            "crate::worker::coordinator",
            "crate::worker::Shared",
            "crate::handler",
            "super::super",
        ],
    },
    Rule { part: "crates/sawmill/src/worker/run", forbidden: &["crate::worker::coordinator"] },
];

/// Crates that must not depend on others of ours, but for these.
const CRATES: &[(&str, &[&str])] = &[
    ("sawmill-engine", &[]),
    ("sawmill-sqlite", &["sawmill-engine"]),
    ("sawmill-postgres", &["sawmill-engine"]),
    ("sawmill-mysql", &["sawmill-engine"]),
    ("sawmill-kafka", &["sawmill-engine"]),
    ("sawmill-cassandra", &["sawmill-engine"]),
    ("sawmill-zookeeper", &["sawmill-engine"]),
    (
        "sawmill",
        &[
            "sawmill-engine",
            "sawmill-sqlite",
            "sawmill-postgres",
            "sawmill-mysql",
            "sawmill-kafka",
            "sawmill-cassandra",
            "sawmill-zookeeper",
        ],
    ),
    ("sawmill-serve", &["sawmill"]),
    ("sawmill-sim", &["sawmill"]),
    ("sawmill-conformance", &["sawmill"]),
];

/// Checks every rule. The error names all violations.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut violations = Vec::new();
    let mut files = 0;
    for rule in RULES {
        let sources = sources_of(&root.join(rule.part)).map_err(|why| format!("{}: {why}", rule.part))?;
        files += sources.len();
        for (path, text) in sources {
            violations.extend(
                forbidden_in(&text, rule.forbidden)
                    .into_iter()
                    .map(|(line, used)| format!("{path}:{line}: {} must not use {used}", rule.part)),
            );
        }
    }
    for (name, allowed) in CRATES {
        let manifest = root.join("crates").join(name).join("Cargo.toml");
        let text =
            fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        let extra = own_dependencies(&text).into_iter().filter(|used| !allowed.contains(&used.as_str()));
        violations.extend(extra.map(|used| format!("{name} must not depend on {used}")));
    }
    match violations.is_empty() {
        true => {
            say(&format!("{} rules hold in {files} files, and {} crates", RULES.len(), CRATES.len()));
            Ok(())
        }
        false => Err(violations.join("\n")),
    }
}

/// Reads the source files below a folder, but for those of tests.
fn sources_of(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut sources = Vec::new();
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            sources.extend(sources_of(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !name.ends_with("tests") {
            let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
            sources.push((path.display().to_string(), text));
        }
    }
    Ok(sources)
}

/// The uses of forbidden paths in the code of a file, with their lines. Comments do not count, nor do tests, which stand last.
fn forbidden_in<'f>(text: &str, forbidden: &[&'f str]) -> Vec<(usize, &'f str)> {
    let code = text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    let mut found = Vec::new();
    for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
        let used = forbidden.iter().filter(|path| mentions(line, path));
        found.extend(used.map(|path| (number + 1, *path)));
    }
    found
}

/// True if a path, or one below it, occurs in a line.
fn mentions(line: &str, path: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    line.match_indices(path).any(|(at, _)| ends(&line[at + path.len()..]))
}

/// The crates of this project that a manifest names in `[dependencies]`.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if section == "[dependencies]" && (name == "sawmill" || name.starts_with("sawmill-")) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_keeps_its_layers() {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    }

    #[test]
    fn a_planted_violation_is_found_and_named_by_its_line() {
        let text = "//! See crate::worker.\nuse crate::store::Store;\nuse crate::worker::Worker;\n";
        assert_eq!(forbidden_in(text, &["crate::worker", "crate::admin"]), [(3, "crate::worker")]);
    }

    #[test]
    fn tests_comments_and_longer_names_do_not_count() {
        let text = "// crate::worker\nuse crate::workers::X;\n#[cfg(test)]\nmod tests { use crate::worker::Worker; }\n";
        assert_eq!(forbidden_in(text, &["crate::worker"]), []);
    }

    #[test]
    fn a_planted_dependency_is_found_and_dev_dependencies_may_point_upwards() {
        let manifest = "[dependencies]\nsawmill = { workspace = true }\nsawmill-engine.workspace = true\nserde = \"1\"\n\
                        [dev-dependencies]\nsawmill-conformance.workspace = true\n";
        assert_eq!(own_dependencies(manifest), ["sawmill", "sawmill-engine"]);
    }
}
