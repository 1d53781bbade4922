//! Maps ZooKeeper errors, including missing answers, to Sawmill errors.

use sawmill_engine::{Error, ErrorKind};
use zookeeper_client::Error as Zk;

/// True if the server refused: nothing was or will be written. All other errors leave that open.
pub(crate) fn is_certain(error: &Zk) -> bool {
    matches!(
        error,
        Zk::NoNode
            | Zk::NoAuth
            | Zk::BadVersion
            | Zk::NoChildrenForEphemerals
            | Zk::NodeExists
            | Zk::NotEmpty
            | Zk::InvalidAcl
            | Zk::NotReadOnly
            | Zk::QuotaExceeded
            | Zk::Throttled
            | Zk::MarshallingError
            | Zk::Unimplemented
            | Zk::BadArguments(_)
    )
}

/// Explains the error of a failed call.
pub(crate) fn explain(error: &Zk) -> Error {
    let (kind, said) = match error {
        Zk::NoAuth | Zk::AuthFailed | Zk::InvalidAcl => (
            ErrorKind::Invalid,
            "ZooKeeper does not let this user at the ledger's nodes; check the user and the password in the ledger's URL",
        ),
        Zk::BadArguments(_) => (ErrorKind::Invalid, "ZooKeeper takes no such name for a node"),
        Zk::QuotaExceeded => {
            (ErrorKind::Full, "ZooKeeper has no room left for this path; raise its quota, then try again")
        }
        Zk::Unimplemented => {
            (ErrorKind::Unsupported, "this ZooKeeper is too old; it must be version 3.6 or later")
        }
        Zk::NotReadOnly | Zk::Throttled => {
            (ErrorKind::Unavailable, "ZooKeeper takes no writes just now; try again")
        }
        Zk::NoNode => (
            ErrorKind::Corrupt,
            "the node below which the ledger is kept is gone; somebody has removed it: restore it from a backup",
        ),
        _ => return unreachable(&error.to_string()),
    };
    Error::new(kind, format!("{said} ({error})"))
}

/// The error of servers that do not answer.
pub(crate) fn unreachable(why: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("ZooKeeper cannot be reached; check the hosts and the ports, and that it runs ({why})"),
    )
}

/// The error of a node that this engine did not write.
pub(crate) fn corrupt(path: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the node {path} of ZooKeeper holds what this version did not write; remove it, or upgrade"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_kind_and_what_is_not_an_answer_is_not_certain() {
        for (error, kind, certain) in [
            (Zk::NoAuth, ErrorKind::Invalid, true),
            (Zk::QuotaExceeded, ErrorKind::Full, true),
            (Zk::Unimplemented, ErrorKind::Unsupported, true),
            (Zk::Throttled, ErrorKind::Unavailable, true),
            (Zk::NoNode, ErrorKind::Corrupt, true),
            (Zk::ConnectionLoss, ErrorKind::Unavailable, false),
            (Zk::SessionExpired, ErrorKind::Unavailable, false),
            (Zk::ClientClosed, ErrorKind::Unavailable, false),
            (Zk::Timeout, ErrorKind::Unavailable, false),
        ] {
            assert_eq!((explain(&error).kind(), is_certain(&error)), (kind, certain), "{error}");
        }
    }
}
