//! The root certificates of the system, which the program trusts too.

use std::sync::OnceLock;

use rustls::pki_types::CertificateDer;

/// Returns the root certificates of the system, read once.
pub(crate) fn certificates() -> Result<&'static [CertificateDer<'static>], String> {
    static TRUSTED: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    let trusted = TRUSTED.get_or_init(|| rustls_native_certs::load_native_certs().certs);
    match trusted.is_empty() {
        false => Ok(trusted),
        true => {
            Err("this system has no certificates that it trusts: install them (ca-certificates)".to_owned())
        }
    }
}
