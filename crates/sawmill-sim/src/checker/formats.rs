//! Formats: a newer one is used only once every member understands it, and a rewrite keeps all data of a
//! newer entry.
//!
//! Values are read here as plain JSON, not by the core, so that data which the core would drop is noticed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::book::Book;
use super::invariant::Invariant;
use super::shards::Written;
use crate::control::NodeId;

/// The checker's records about formats.
pub(super) struct FormatHistory {
    /// The newest format that a node's program understands, for older programs.
    understood: BTreeMap<NodeId, u64>,
    /// The format of the store.
    stored: u64,
    /// The announced format.
    next: Option<u64>,
    /// The current members.
    members: BTreeMap<String, Joined>,
}

/// A member and the format that it understands.
#[derive(Clone, Copy)]
struct Joined {
    understands: u64,
    /// True if it joined after the latest announcement. It then reads the announcement itself.
    after_announcement: bool,
}

impl Default for FormatHistory {
    fn default() -> Self {
        Self { understood: BTreeMap::new(), stored: 1, next: None, members: BTreeMap::new() }
    }
}

/// Splits an entry into its format and its state.
fn unwrapped(mut value: Value) -> (u64, Value) {
    match value.get("format").and_then(Value::as_u64) {
        Some(format) => (format, value.get_mut("state").map(Value::take).unwrap_or_default()),
        None => (1, value),
    }
}

fn parse(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_default()
}

fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the stamps of claims by span, which identifies a claim independently of its owner.
fn stamps(state: &Value) -> BTreeMap<String, u64> {
    let claims = state.get("claims").and_then(Value::as_array).into_iter().flatten();
    let stamp = |claim: &Value| {
        let block = (claim.get("span"), claim.get("pass"), claim.get("from"));
        (format!("{block:?}"), number(claim, "stamp"))
    };
    claims.map(stamp).collect()
}

impl Book {
    /// Records the newest format that the program of this node understands.
    pub fn understands(&mut self, node: NodeId, format: u32) {
        self.formats.understood.insert(node, format.into());
    }

    /// Returns how often the store's format was raised.
    pub fn formats_raised(&self) -> u64 {
        self.formats.stored - 1
    }

    /// Invariant 16, for one change of the ledger.
    pub(super) fn format_holds(&mut self, written: &Written<'_>) {
        let mut parts = written.key.as_str().split('/');
        match parts.next() {
            Some("store") => self.format_written(written),
            Some("members") => self.member_understands(written),
            Some("shards") => self.nothing_forgotten(written),
            _ => {}
        }
    }

    fn format_written(&mut self, written: &Written<'_>) {
        let key = written.key.as_str();
        let value = written.value.map(|value| parse(value)).unwrap_or_default();
        let (format, next) = (number(&value, "format"), value.get("next").and_then(Value::as_u64));
        let (before, announced) = (self.formats.stored, self.formats.next);
        let steps = format == before || (format > before && announced == Some(format));
        self.check(Invariant::Formats, format >= 1 && steps, |_| {
            let what =
                format!("the store's format went from {before} to {format}; announced was {announced:?}");
            (what, vec![key.to_owned()])
        });
        if format > before {
            let mut members = self.formats.members.iter();
            let old = members.find(|(_, joined)| joined.understands < format && !joined.after_announcement);
            let old = old.map(|(member, joined)| (member.clone(), joined.understands));
            self.check(Invariant::Formats, old.is_none(), |_| {
                let (member, understands) = old.unwrap_or_default();
                let what = format!(
                    "the store's format was raised to {format} although {member} understands formats up to {understands}"
                );
                (what, vec![key.to_owned(), member])
            });
        }
        if next.is_some() && announced != next {
            self.formats.members.values_mut().for_each(|joined| joined.after_announcement = false);
        }
        (self.formats.stored, self.formats.next) = (format.max(before), next);
    }

    /// A member that does not understand the store's format must leave instead of renewing.
    fn member_understands(&mut self, written: &Written<'_>) {
        let member = written.key.as_str().to_owned();
        let Some(value) = written.value else {
            self.formats.members.remove(&member);
            return;
        };
        let understands = number(&parse(value), "format").max(1);
        let known = self.formats.understood.get(&written.node).copied();
        self.check(Invariant::Formats, known.is_none_or(|known| understands <= known), |_| {
            let what = format!(
                "{member} says that it understands formats up to {understands}; that is not so: {known:?}"
            );
            (what, vec![member.clone()])
        });
        let stored = self.formats.stored;
        if let Some(joined) = self.formats.members.get_mut(&member) {
            joined.understands = understands;
            self.check(Invariant::Formats, understands >= stored, |_| {
                let what = format!(
                    "{member} stays a member, and understands formats up to {understands}; the store has format {stored}"
                );
                (what, vec![member])
            });
        } else {
            let after_announcement = self.formats.next.is_some();
            self.formats.members.insert(member, Joined { understands, after_announcement });
        }
    }

    /// A program that rewrites an entry must understand its format and keep all its data.
    fn nothing_forgotten(&mut self, written: &Written<'_>) {
        let Some(value) = written.value else { return };
        let key = written.key.as_str();
        let (format, new) = unwrapped(parse(value));
        let stored = self.formats.stored;
        self.check(Invariant::Formats, format <= stored, |_| {
            let what = format!("{key} was written in format {format}, and the store has format {stored}");
            (what, vec![key.to_owned()])
        });
        let Some(old) = written.old else { return };
        let (before, old) = unwrapped(parse(&old.value));
        let understands = self.formats.understood.get(&written.node).copied().unwrap_or(u64::MAX);
        self.check(Invariant::Formats, before <= understands, |_| {
            let node = written.node;
            let what = format!(
                "{key} is in format {before}, and was rewritten by {node}, which understands formats up to {understands}"
            );
            (what, vec![key.to_owned()])
        });
        let fields =
            |state: &Value| state.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
        let kept = fields(&new).unwrap_or_default();
        let mut lost: Vec<String> = fields(&old).unwrap_or_default();
        lost.retain(|field| !kept.contains(field));
        let now = stamps(&new);
        let stamped = stamps(&old).into_iter().filter(|(_, stamp)| *stamp > 0);
        lost.extend(
            stamped
                .filter(|(block, stamp)| now.get(block).is_some_and(|now| now != stamp))
                .map(|(block, _)| block),
        );
        let counted = before == 1 || number(&new, "writes") == number(&old, "writes") + 1;
        self.check(Invariant::Formats, format >= before && lost.is_empty() && counted, |_| {
            let what = format!("{key} went from format {before} to {format}, and lost {lost:?}");
            (what, vec![key.to_owned()])
        });
    }
}
