//! The TLS configuration of connections to the nodes.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use sawmill_engine::{Error, ErrorKind, Result};

fn invalid(said: String) -> Error {
    Error::new(ErrorKind::Invalid, said)
}

/// Makes the driver's TLS configuration, with the authorities in this file or those of the system.
pub(crate) fn config(authorities: Option<&str>) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    match authorities {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(file) => {
            let failure = |said: String| invalid(format!("ssl-ca={file}: {said}"));
            let certificates = CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| failure(format!("it cannot be read ({error})")))?;
            roots.add_parsable_certificates(certificates);
            if roots.is_empty() {
                return Err(failure("it contains no PEM certificate".to_owned()));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(error.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
