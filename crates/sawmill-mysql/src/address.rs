//! Parses a store's URL: where the server is, and whether the connection is encrypted.
//!
//! The settings have the names that MySQL's own programs use. `VERIFY_CA` is refused because the driver would
//! check the host's name as well.

use std::borrow::Cow;
use std::fs;

use mysql_async::{Opts, OptsBuilder, SslOpts};
use rustls::crypto::{CryptoProvider, ring};
use sawmill_engine::storage::StoreUrl;
use sawmill_engine::{Error, ErrorKind, Result};
use url::Url;

/// The setting for encryption.
const MODE: &str = "ssl-mode";
/// The setting for a file with the trusted certificates.
const AUTHORITIES: &str = "ssl-ca";
/// The driver's own settings for the same. Supporting half of them would be worse than none.
const DRIVERS_OWN: [&str; 4] = ["require_ssl", "verify_ca", "verify_identity", "built_in_roots"];

fn invalid(said: String) -> Error {
    Error::new(ErrorKind::Invalid, said)
}

/// Returns the options for the driver.
pub(crate) fn opts_of(url: &StoreUrl) -> Result<Opts> {
    let refused = |said: &str| invalid(format!("{url}: {said}"));
    if url.scheme() != "mysql" {
        return Err(refused("this engine opens URLs like mysql://user:password@host/database"));
    }
    let no_url = |error: &dyn std::fmt::Display| {
        refused(&format!("this is no URL like mysql://user:password@host:3306/database ({error})"))
    };
    let mut plain = Url::parse(url.with_password()).map_err(|error| no_url(&error))?;
    let security = Security::take_from(&mut plain)
        .map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))?;
    let opts = Opts::from_url(plain.as_str()).map_err(|error| no_url(&error))?;
    if opts.db_name().is_none_or(str::is_empty) {
        return Err(refused("the database is missing: write mysql://user:password@host/database"));
    }
    Ok(match security {
        Security::None => opts,
        Security::Encrypted(ssl) => OptsBuilder::from_opts(opts).ssl_opts(ssl).into(),
    })
}

/// The encryption of the connection.
#[derive(Debug)]
enum Security {
    None,
    Encrypted(SslOpts),
}

impl Security {
    /// Removes the settings for encryption from a URL; the driver does not know them.
    fn take_from(url: &mut Url) -> Result<Self> {
        let (mut mode, mut authorities, mut others) = (None, None, Vec::new());
        for (name, value) in url.query_pairs() {
            let setting = match &*name {
                MODE => &mut mode,
                AUTHORITIES => &mut authorities,
                own if DRIVERS_OWN.contains(&own) => {
                    return Err(invalid(format!(
                        "{own} is the driver's own: write {MODE}=REQUIRED or {MODE}=VERIFY_IDENTITY"
                    )));
                }
                _ => {
                    others.push((name.into_owned(), value.into_owned()));
                    continue;
                }
            };
            if setting.replace(value.into_owned()).is_some() {
                return Err(invalid(format!("{name} is given twice")));
            }
        }
        url.set_query(None);
        if !others.is_empty() {
            url.query_pairs_mut().extend_pairs(others);
        }
        Self::from_settings(mode.as_deref(), authorities.as_deref())
    }

    fn from_settings(mode: Option<&str>, authorities: Option<&str>) -> Result<Self> {
        let mode = mode.map(str::to_ascii_uppercase);
        match (mode.as_deref().unwrap_or("DISABLED"), authorities) {
            ("DISABLED", None) => Ok(Self::None),
            // The driver requires certificates even when it verifies nothing: the built-in ones will do.
            ("REQUIRED", None) => {
                Ok(Self::encrypted(SslOpts::default().with_danger_accept_invalid_certs(true)))
            }
            ("VERIFY_IDENTITY", None) => Ok(Self::encrypted(SslOpts::default())),
            ("VERIFY_IDENTITY", Some(file)) => {
                let certificates = certificates(file)?;
                let ssl = SslOpts::default().with_disable_built_in_roots(true);
                Ok(Self::encrypted(ssl.with_root_certs(vec![certificates.into()])))
            }
            ("DISABLED" | "REQUIRED", Some(_)) => Err(invalid(format!(
                "{AUTHORITIES} is of no use unless the server's certificate is checked: add {MODE}=VERIFY_IDENTITY"
            ))),
            ("VERIFY_CA", _) => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a certificate is checked with the host's name or not at all: use {MODE}=VERIFY_IDENTITY"
                ),
            )),
            (other, _) => {
                Err(invalid(format!("{MODE} is {other}, and can be DISABLED, REQUIRED or VERIFY_IDENTITY")))
            }
        }
    }

    fn encrypted(ssl: SslOpts) -> Self {
        // The driver panics in a program with several cryptographic libraries unless one is selected. This
        // does nothing if the program has selected one itself.
        if CryptoProvider::get_default().is_none() {
            let _ = ring::default_provider().install_default();
        }
        Self::Encrypted(ssl)
    }
}

/// Reads the certificates in a file.
fn certificates(file: &str) -> Result<Vec<u8>> {
    let invalid_file = |said: Cow<'_, str>| invalid(format!("{AUTHORITIES}={file}: {said}"));
    let bytes = fs::read(file).map_err(|error| invalid_file(format!("it cannot be read: {error}").into()))?;
    if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----") {
        return Err(invalid_file("there is no certificate in it, as PEM writes them".into()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opts(text: &str) -> Result<Opts> {
        opts_of(&text.parse().unwrap())
    }

    #[test]
    fn a_url_names_a_database_and_errors_hide_the_password() {
        let good = opts("mysql://me:secret@host:3307/jobs").unwrap();
        assert_eq!((good.ip_or_hostname(), good.tcp_port(), good.db_name()), ("host", 3307, Some("jobs")));
        for (text, said) in [
            ("mysql://me:secret@host", "the database is missing"),
            ("mysql://me:secret@host/", "the database is missing"),
            ("mysql://me:secret@host:port/jobs", "no URL like"),
            ("mysql://me:secret@host/jobs?colour=red", "colour"),
            ("mysql://me:secret@host/jobs?require_ssl=true", "ssl-mode=REQUIRED"),
            ("mysql://me:secret@host/jobs?verify_ca=false", "ssl-mode=REQUIRED"),
            ("mysql://me:secret@host/jobs?ssl-mode=PREFERRED", "PREFERRED"),
            ("mysql://me:secret@host/jobs?ssl-mode=REQUIRED&ssl-mode=DISABLED", "twice"),
            ("mysql://me:secret@host/jobs?ssl-ca=ca.pem", "VERIFY_IDENTITY"),
            (
                "mysql://me:secret@host/jobs?ssl-mode=verify_identity&ssl-ca=/no/file",
                "/no/file: it cannot be read",
            ),
            ("mysql://me:secret@host/jobs?ssl-mode=verify_identity&ssl-ca=Cargo.toml", "no certificate"),
            ("mysql:jobs", "no URL like"),
            ("postgres://me:secret@host/jobs", "this engine opens URLs like mysql://"),
        ] {
            let error = opts(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(said), "{text}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let error = opts("mysql://me:secret@host/jobs?ssl-mode=VERIFY_CA").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn the_way_is_as_secure_as_the_url_says() {
        let ssl = |settings: &str| {
            let opts =
                opts(&format!("mysql://me:se%2Fcret@host/jobs?client_found_rows=true{settings}")).unwrap();
            assert_eq!((opts.pass(), opts.client_found_rows()), (Some("se/cret"), true));
            opts.ssl_opts().map(|ssl| (ssl.accept_invalid_certs(), ssl.skip_domain_validation()))
        };
        assert_eq!(ssl(""), None);
        assert_eq!(ssl("&ssl-mode=disabled"), None);
        assert_eq!(ssl("&ssl-mode=REQUIRED"), Some((true, false)));
        assert_eq!(ssl("&ssl-mode=VERIFY_IDENTITY"), Some((false, false)));
    }
}
