//! One SMTP session for one e-mail. It tells apart whether the server refuses us or the e-mail.
//!
//! Each e-mail has its own connection. If a delivery is dropped, a shared connection would be left in the
//! middle of a session, and the next e-mail would read the replies to the dropped one.

use std::time::Duration;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use sawmill::engine::runtime::Env;

use super::composer::OutgoingMail;

/// The time limit for closing the session. The e-mail is sent by then and must not fail because of it.
const QUIT: Duration = Duration::from_secs(1);

/// The encryption of the connection.
pub(super) enum TlsMode {
    /// The connection starts unencrypted and is upgraded.
    Starttls(TlsParameters),
    /// The connection is encrypted from the start.
    Implicit(TlsParameters),
    /// The connection is not encrypted.
    Open,
}

/// Why an e-mail was not sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// A retry may succeed.
    Temporary(Error),
    /// The server refuses this e-mail permanently.
    Message(Error),
    /// It has addresses that are not ASCII, which the server does not support.
    NeedsSmtpUtf8,
    /// The server refuses us, or cannot do what we require: no e-mail is at fault.
    Sender(Error),
}

/// Reply codes that refuse the sender, at any point of the session (RFC 4954).
const SENDER_CODES: [u16; 4] = [530, 534, 535, 538];

impl SendError {
    /// Classifies an error before the e-mail was mentioned.
    fn before_mail(error: Error) -> Self {
        match error.is_permanent() || error.is_client() {
            true => Self::Sender(error),
            false => Self::Temporary(error),
        }
    }

    /// Classifies an error about the e-mail.
    fn of_mail(error: Error) -> Self {
        match error.status().map(u16::from) {
            Some(code) if SENDER_CODES.contains(&code) => Self::Sender(error),
            _ if error.is_permanent() => Self::Message(error),
            _ => Self::Temporary(error),
        }
    }
}

/// Sends e-mails to one server.
pub(super) struct SmtpSender {
    server: String,
    port: u16,
    tls: TlsMode,
    credentials: Option<Credentials>,
    /// The name that we introduce ourselves with.
    name: ClientId,
}

impl SmtpSender {
    pub(super) fn new(server: String, port: u16, tls: TlsMode, credentials: Option<Credentials>) -> Self {
        Self { server, port, tls, credentials, name: ClientId::default() }
    }

    /// Sends an e-mail. Dropping the future closes the connection.
    pub(super) async fn send(&self, env: &Env, mail: &OutgoingMail) -> Result<(), SendError> {
        let mut connection = self.connect().await.map_err(SendError::before_mail)?;
        let sent = transmit(&mut connection, mail).await;
        let _ = env.within(QUIT, connection.abort()).await;
        sent
    }

    /// Connects and authenticates. The whole delivery has a time limit, so this has none of its own.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let implicit = match &self.tls {
            TlsMode::Implicit(parameters) => Some(parameters.clone()),
            TlsMode::Starttls(_) | TlsMode::Open => None,
        };
        let address = (self.server.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(address, None, &self.name, implicit, None).await?;
        if let TlsMode::Starttls(parameters) = &self.tls {
            connection.starttls(parameters.clone(), &self.name).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }
}

async fn transmit(connection: &mut AsyncSmtpConnection, mail: &OutgoingMail) -> Result<(), SendError> {
    let needs_smtputf8 = mail.needs_smtputf8();
    if needs_smtputf8 && !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
        return Err(SendError::NeedsSmtpUtf8);
    }
    let needs = needs_smtputf8.then_some(MailParameter::SmtpUtfEight).into_iter().collect();
    // The sender address is the same for all e-mails; the SMTPUTF8 parameter is not.
    let refused = if needs_smtputf8 { SendError::of_mail } else { SendError::before_mail };
    connection.command(Mail::new(mail.envelope.from().cloned(), needs)).await.map_err(refused)?;
    for to in mail.envelope.to() {
        connection.command(Rcpt::new(to.clone(), Vec::new())).await.map_err(SendError::of_mail)?;
    }
    connection.command(Data).await.map_err(SendError::of_mail)?;
    connection.message(mail.text.as_bytes()).await.map_err(SendError::of_mail)?;
    Ok(())
}
