//! A certificate authority for the test servers, which the program trusts through `SSL_CERT_FILE`.

use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::support::Place;

pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

/// A server's certificate and its key.
pub(crate) struct Certified {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    pub(crate) fn certify(&self, host: &str) -> Certified {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        Certified { certificate: params.signed_by(&key, &self.certificate, &self.key).unwrap(), key }
    }

    /// Makes a program trust only this authority.
    pub(crate) fn trusted_by<'a>(&self, place: &Place, program: &'a mut Command) -> &'a mut Command {
        let file = place.write("authority.pem", &self.certificate.pem());
        program.env("SSL_CERT_FILE", file).env_remove("SSL_CERT_DIR")
    }
}

impl Certified {
    pub(crate) fn config(&self) -> Arc<rustls::ServerConfig> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key);
        Arc::new(config.unwrap())
    }

    /// Returns certificate and key as PEM.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem() + &self.key.serialize_pem()
    }
}
