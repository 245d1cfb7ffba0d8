//! Certificates for a test, in directories with the layout that servers and clients expect.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// An authority that signs any certificate that a test requests.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "an authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Writes the certificate of the authority.
    pub(crate) fn write_certificate(&self, directory: &Path) {
        std::fs::write(directory.join("ca-cert.pem"), &self.pem).expect("a directory");
    }

    /// Writes a certificate and a key for the server at `names`.
    pub(crate) fn write_server(&self, directory: &Path, names: &[&str]) {
        self.write(directory, "server", names, ExtendedKeyUsagePurpose::ServerAuth);
    }

    /// Writes a certificate and a key for a client.
    pub(crate) fn write_client(&self, directory: &Path) {
        self.write(directory, "client", &[], ExtendedKeyUsagePurpose::ClientAuth);
    }

    fn write(&self, directory: &Path, role: &str, names: &[&str], usage: ExtendedKeyUsagePurpose) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.distinguished_name.push(DnType::CommonName, format!("a {role} of a test"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let write = |file: String, pem: String| {
            let path = directory.join(file);
            std::fs::write(&path, pem).expect("a directory");
            std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("our file");
        };
        write(format!("{role}-cert.pem"), certificate.pem());
        write(format!("{role}-key.pem"), key.serialize_pem());
    }
}
