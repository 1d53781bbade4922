//! Translates the driver's errors into Sawmill's: their kind, and what to do about them.

use rdkafka::client::ClientContext;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use sawmill_engine::{Error, ErrorKind};

/// Returns the code of an error, if it has one.
pub(crate) fn code_of(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// Translates the error of a call that had no effect.
pub(crate) fn explain(error: &KafkaError) -> Error {
    match code_of(error) {
        Some(code) => explain_code(code, &error.to_string()),
        None => Error::new(ErrorKind::Invalid, format!("the driver refuses this ({error})")),
    }
}

/// Translates an error code.
pub(crate) fn explain_code(code: Code, said: &str) -> Error {
    let (kind, what) = match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            (ErrorKind::NotFound, "the topic does not exist; create it first")
        }
        Code::Authentication | Code::SaslAuthenticationFailed => (
            ErrorKind::Invalid,
            "the broker does not know this user with this password; check both, and sasl",
        ),
        Code::UnsupportedSASLMechanism => (
            ErrorKind::Invalid,
            "the broker does not offer this way to log in; set sasl to one that it offers",
        ),
        Code::SSL => (
            ErrorKind::Invalid,
            "no encrypted connection could be made; check tls, ca, and that the certificate names this host",
        ),
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::GroupAuthorizationFailed => (
            ErrorKind::Invalid,
            "the user lacks rights; grant it to create, describe, read, write and alter its topics",
        ),
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => (
            ErrorKind::TooLarge,
            "a record is larger than the topic takes; raise the topic's max.message.bytes, or store it elsewhere",
        ),
        Code::InvalidReplicationFactor => (
            ErrorKind::Invalid,
            "there are fewer brokers than the replication factor; set a lower replication in the URL",
        ),
        Code::PolicyViolation | Code::InvalidConfig | Code::InvalidTopic => (
            ErrorKind::Invalid,
            "the broker's policy forbids this; create the topic in Kafka with settings that it allows, then use it",
        ),
        Code::KafkaStorageError => (ErrorKind::Full, "the broker cannot write; check its disk"),
        _ => (
            ErrorKind::Unavailable,
            "the brokers cannot be reached or are busy; check that they run, then try again",
        ),
    };
    Error::new(kind, format!("{what} ({said})"))
}

/// Returns whether a record that failed with this code is certainly not in the log.
pub(crate) fn is_not_written(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::QueueFull
            | Code::InvalidRecord
            | Code::PolicyViolation
            | Code::Authentication
            | Code::SaslAuthenticationFailed
    )
}

/// Returns whether a connection error persists until somebody changes the configuration.
pub(crate) fn is_permanent(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication | Code::SSL | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism
    )
}

/// Returns whether a partition currently has no leader.
pub(crate) fn is_leaderless(code: Code) -> bool {
    matches!(
        code,
        Code::NotLeaderForPartition
            | Code::LeaderNotAvailable
            | Code::ReplicaNotAvailable
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
    )
}

/// Returns whether a partition or its topic was reported as unknown. New clients and busy brokers sometimes report
/// this of a topic that exists.
pub(crate) fn is_unknown(code: Code) -> bool {
    matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
}

/// Receives the driver's events.
#[derive(Default)]
pub(crate) struct DriverContext;

impl ClientContext for DriverContext {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the driver reports trouble");
    }
}

impl ConsumerContext for DriverContext {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_kind() {
        for (code, kind) in [
            (Code::UnknownTopicOrPartition, ErrorKind::NotFound),
            (Code::Authentication, ErrorKind::Invalid),
            (Code::SSL, ErrorKind::Invalid),
            (Code::TopicAuthorizationFailed, ErrorKind::Invalid),
            (Code::MessageSizeTooLarge, ErrorKind::TooLarge),
            (Code::BrokerTransportFailure, ErrorKind::Unavailable),
            (Code::OperationTimedOut, ErrorKind::Unavailable),
        ] {
            assert_eq!(explain_code(code, "said").kind(), kind, "{code:?}");
        }
        let late = explain(&KafkaError::AdminOp(Code::OperationTimedOut));
        assert_eq!(late.kind(), ErrorKind::Unavailable, "{late}");
        assert!(is_not_written(Code::MessageSizeTooLarge) && !is_not_written(Code::MessageTimedOut));
    }
}
