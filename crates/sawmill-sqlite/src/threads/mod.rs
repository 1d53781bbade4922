//! The threads that work on the database: one writes, one syncs, some read.

pub(crate) mod batch;
pub(crate) mod reader;
pub(crate) mod syncer;
pub(crate) mod wal;
pub(crate) mod work;
pub(crate) mod writer;
