use std::sync::Arc;

use celeriac_core::{Error, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::options::{PostgresOptions, TlsMode};

/// The connector that every connection of a store uses, the listening one too.
pub(crate) fn connector(options: &PostgresOptions) -> Result<MakeRustlsConnect> {
    // Named, not taken from the process: a program may link two providers, and then there is no default one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(options, format!("TLS cannot be set up: {error}")))?;
    let config = match options.tls {
        TlsMode::VerifyFull => builder.with_root_certificates(roots(options)?).with_no_client_auth(),
        mode => {
            let chain = if mode == TlsMode::VerifyCa {
                let roots = Arc::new(roots(options)?);
                let chain = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|error| refuse(options, format!("sslrootcert: {error}")))?;
                Some(chain)
            } else {
                None
            };
            let lenient = Arc::new(Lenient { provider, chain });
            builder.dangerous().with_custom_certificate_verifier(lenient).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn refuse(options: &PostgresOptions, problem: String) -> Error {
    Error::UnsupportedUrl { url: options.shown.clone(), problem }
}

fn roots(options: &PostgresOptions) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    if let Some(path) = &options.root_certificates {
        let unreadable = |error: String| refuse(options, format!("sslrootcert {}: {error}", path.display()));
        let certificates =
            CertificateDer::pem_file_iter(path).map_err(|error| unreadable(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
        }
        if store.is_empty() {
            return Err(unreadable("it holds no certificate in PEM form".to_owned()));
        }
        return Ok(store);
    }
    let system = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(system.certs);
    if store.is_empty() {
        return Err(refuse(
            options,
            "this machine has no trusted certificates; install them, or name a file with sslrootcert"
                .to_owned(),
        ));
    }
    Ok(store)
}

/// What `require` and `verify-ca` mean in PostgreSQL: no look at the name, and with `require` none at the chain. The
/// handshake's signature is checked all the same.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, so all else was in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
