//! Connections to the server, its properties, and how statements are sent and repeated.

pub(crate) mod connections;
pub(crate) mod incarnation;
pub(crate) mod retry;
pub(crate) mod server;
pub(crate) mod sql;
