//! The commands. Each is a file or a folder.

pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod cron;
pub(crate) mod dead;
#[cfg(feature = "deliver")]
pub(crate) mod deliver;
pub(crate) mod demo;
pub(crate) mod doctor;
#[cfg(feature = "serve")]
pub(crate) mod key;
pub(crate) mod manual;
pub(crate) mod migrate;
pub(crate) mod pause;
pub(crate) mod peek;
#[cfg(feature = "kafka")]
pub(crate) mod pool;
pub(crate) mod push;
pub(crate) mod replay;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod topic;
pub(crate) mod trim;
pub(crate) mod work;
pub(crate) mod workers;
