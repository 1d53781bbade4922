//! Encryption of connections, set by `sslmode` and `sslrootcert` in the URL. Both mean the same as in
//! PostgreSQL's own clients.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sawmill_engine::storage::percent_decode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;

/// The TLS settings of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: Mode,
    /// The trusted certificates: a file, or `system`.
    pub(crate) roots: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Disable,
    /// Encrypted if the server supports it, without checking its identity. This is the default.
    Prefer,
    /// Encrypted. The certificate is checked only if `roots` is given.
    Require,
    VerifyCa,
    VerifyFull,
}

const MODES: [(&str, Mode); 5] = [
    ("disable", Mode::Disable),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

impl TlsSettings {
    /// Removes the TLS settings from a URL. Returns the rest, which is for the driver. The error says what is
    /// wrong with the URL.
    pub(crate) fn from_url(url: &str) -> Result<(String, Self), String> {
        let mut settings = Self { mode: Mode::Prefer, roots: None };
        // Like the driver: everything before the first @ is the user and the password.
        let from = url.find('@').map_or(0, |at| at + 1);
        let Some(question) = url[from..].find('?').map(|at| from + at) else {
            return Ok((url.to_owned(), settings));
        };
        let mut others = Vec::new();
        for setting in url[question + 1..].split('&') {
            match setting.split_once('=') {
                Some(("sslmode", mode)) => {
                    let named = MODES.iter().find(|(name, _)| *name == mode);
                    let names = MODES.map(|(name, _)| name).join(", ");
                    settings.mode =
                        named.ok_or_else(|| format!("sslmode is one of {names}, not {mode:?}"))?.1;
                }
                Some(("sslrootcert", roots)) => {
                    settings.roots = Some(percent_decode(roots).map_err(|error| error.to_string())?)
                }
                _ => others.push(setting),
            }
        }
        let rest = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        Ok((format!("{}{rest}", &url[..question]), settings))
    }

    pub(crate) fn ssl_mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Returns the factory of connections, or the reason why there is none.
    pub(crate) fn connector(&self) -> Result<Tls, String> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let (verify, names) = match (self.mode, &self.roots) {
            (Mode::Disable | Mode::Prefer, _) | (Mode::Require, None) => (false, false),
            (Mode::Require | Mode::VerifyCa, _) => (true, false),
            (Mode::VerifyFull, _) => (true, true),
        };
        let chain = match verify {
            false => None,
            true => {
                let roots = Arc::new(self.trusted()?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                Some(verifier.map_err(|error| error.to_string())?)
            }
        };
        let verifier = Arc::new(Verifier { chain, names, provider });
        let config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Tls(Arc::new(config)))
    }

    fn trusted(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        match self.roots.as_deref() {
            None | Some("system") => {
                // A certificate that cannot be read does not prevent the use of the others.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err("this system has no certificates: name a file with sslrootcert=".to_owned());
                }
            }
            Some(file) => {
                let unreadable = |error: &dyn fmt::Display| format!("sslrootcert: {file}: {error}");
                let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| unreadable(&error))?;
                    roots.add(certificate).map_err(|error| unreadable(&error))?;
                }
                if roots.is_empty() {
                    return Err(unreadable(&"there is no certificate in it"));
                }
            }
        }
        Ok(roots)
    }
}

/// Verifies a server's certificate as far as the settings ask for it. The signature is always verified, so
/// the server must have the certificate's key.
#[derive(Debug)]
struct Verifier {
    /// The authorities to trust; `None` accepts any certificate.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// True if the certificate must be for the requested host.
    names: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is checked last, so everything else is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.names => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes encrypted connections for the driver.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake { config: self.0.clone(), name: ServerName::try_from(host.to_owned()) })
    }
}

pub(crate) struct Handshake {
    config: Arc<ClientConfig>,
    /// A server behind a Unix socket has no name that could be in a certificate. This is an error only when
    /// encrypting.
    name: Result<ServerName<'static>, InvalidDnsNameError>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = self.name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let stream = TlsConnector::from(self.config).connect(name, socket).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted(Box<tokio_rustls::client::TlsStream<Socket>>);

impl tokio_postgres::tls::TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_taken_out_of_a_url() {
        let settings = |url: &str| TlsSettings::from_url(url).unwrap();
        let plain = "postgres://me:a?b@host/jobs";
        assert_eq!(settings(plain), (plain.to_owned(), TlsSettings { mode: Mode::Prefer, roots: None }));
        let (rest, found) = settings(
            "postgres://me:a?b@host/jobs?sslmode=verify-full&connect_timeout=3&sslrootcert=/a%20b.pem",
        );
        assert_eq!(rest, "postgres://me:a?b@host/jobs?connect_timeout=3");
        assert_eq!(found, TlsSettings { mode: Mode::VerifyFull, roots: Some("/a b.pem".to_owned()) });
        assert_eq!(settings("postgres://host/jobs?sslmode=disable").0, "postgres://host/jobs");
    }

    #[test]
    fn wishes_that_nobody_can_fulfil_are_refused() {
        let refused = |url: &str| TlsSettings::from_url(url).unwrap_err();
        assert!(refused("postgres://host/jobs?sslmode=yes").contains("verify-full, not \"yes\""));
        assert!(refused("postgres://host/jobs?sslrootcert=%zz").contains("hexadecimal"));
        let connector =
            |roots: &str| TlsSettings { mode: Mode::VerifyCa, roots: Some(roots.to_owned()) }.connector();
        assert!(connector("/no/such/file").err().unwrap().contains("/no/such/file"));
        let empty = connector(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).err().unwrap();
        assert!(empty.contains("no certificate"), "{empty}");
    }
}
