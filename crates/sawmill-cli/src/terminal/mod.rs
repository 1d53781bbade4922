//! What people see and type: the live line, the log, data, tables, durations and times.

pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod log_line;
pub(crate) mod output;
pub(crate) mod table;
pub(crate) mod text;
