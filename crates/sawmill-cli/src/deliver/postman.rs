//! One conversation by SMTP for one letter, in which it is told apart whom a server refuses: us, or the letter.
//!
//! Each letter has a connection of its own. One that is shared would be given on in the middle of a conversation if a delivery is
//! dropped, and the next letter would hear the answers to it.

use std::time::Duration;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use sawmill::env::Env;

use super::letter::Letter;

/// How long to wait for a server to take its leave: the letter is sent by then, and must not fail for it.
const GOODBYE: Duration = Duration::from_secs(1);

/// How the way to the server is encrypted.
pub(super) enum Way {
    /// After it has begun in the clear.
    Starttls(TlsParameters),
    /// From the beginning.
    Implicit(TlsParameters),
    /// Not at all.
    Open,
}

/// Why a letter was not sent.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Another try may help.
    Later(Error),
    /// The server refuses this letter for good.
    OfLetter(Error),
    /// It has addresses that are not ASCII, and the server cannot take such.
    Foreign,
    /// The server takes nothing from us, or cannot do what we ask for: no letter is at fault.
    OfUs(Error),
}

/// Codes by which a server refuses who sends, whenever it says so (RFC 4954).
const OF_USERS: [u16; 4] = [530, 534, 535, 538];

impl Refusal {
    /// What was refused before the letter was spoken of.
    fn before(error: Error) -> Self {
        match error.is_permanent() || error.is_client() {
            true => Self::OfUs(error),
            false => Self::Later(error),
        }
    }

    /// What was refused of the letter.
    fn within(error: Error) -> Self {
        match error.status().map(u16::from) {
            Some(code) if OF_USERS.contains(&code) => Self::OfUs(error),
            _ if error.is_permanent() => Self::OfLetter(error),
            _ => Self::Later(error),
        }
    }
}

/// Brings letters to a server.
pub(super) struct Postman {
    server: String,
    port: u16,
    way: Way,
    credentials: Option<Credentials>,
    /// What we call ourselves.
    name: ClientId,
}

impl Postman {
    pub(super) fn new(server: String, port: u16, way: Way, credentials: Option<Credentials>) -> Self {
        Self { server, port, way, credentials, name: ClientId::default() }
    }

    /// Sends a letter. To drop this is to hang up.
    pub(super) async fn send(&self, env: &Env, letter: &Letter) -> Result<(), Refusal> {
        let mut connection = self.connect().await.map_err(Refusal::before)?;
        let sent = hand_over(&mut connection, letter).await;
        let _ = env.within(GOODBYE, connection.abort()).await;
        sent
    }

    /// A connection to a server that knows who we are. A delivery has its time as a whole, so this has none of its own.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let implicit = match &self.way {
            Way::Implicit(parameters) => Some(parameters.clone()),
            Way::Starttls(_) | Way::Open => None,
        };
        let address = (self.server.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(address, None, &self.name, implicit, None).await?;
        if let Way::Starttls(parameters) = &self.way {
            connection.starttls(parameters.clone(), &self.name).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }
}

async fn hand_over(connection: &mut AsyncSmtpConnection, letter: &Letter) -> Result<(), Refusal> {
    let is_foreign = letter.has_foreign_addresses();
    if is_foreign && !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
        return Err(Refusal::Foreign);
    }
    let needs = is_foreign.then_some(MailParameter::SmtpUtfEight).into_iter().collect();
    // Whom it is from is the same for all; what it needs is not.
    let refused = if is_foreign { Refusal::within } else { Refusal::before };
    connection.command(Mail::new(letter.envelope.from().cloned(), needs)).await.map_err(refused)?;
    for to in letter.envelope.to() {
        connection.command(Rcpt::new(to.clone(), Vec::new())).await.map_err(Refusal::within)?;
    }
    connection.command(Data).await.map_err(Refusal::within)?;
    connection.message(letter.text.as_bytes()).await.map_err(Refusal::within)?;
    Ok(())
}
