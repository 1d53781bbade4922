//! Tests the server as clients see it: in this process, on its own port, over SQLite, and once over
//! PostgreSQL.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod browser;
mod description;
mod fuzz;
mod messages;
mod operating;
mod page;
mod postgres;
mod python;
mod security;
mod support;
mod working;
