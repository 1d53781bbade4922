//! The server as its clients see it: in this process, on a port of its own, over SQLite.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod description;
mod messages;
mod operating;
mod page;
mod python;
mod security;
mod support;
mod working;
