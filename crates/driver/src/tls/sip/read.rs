//! What an operator writes about SIP over TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Domain, SipTls, SipTlsFiles};
use crate::config::Table;
use crate::run::unix_ms;
use crate::tls::TlsFile;

impl SipTls {
    /// Reads the files that the table of a listener names, and whom it expects where. What is wrong is a
    /// fault, and then `None` is returned.
    pub fn read(listener: &Table<'_>) -> Option<Self> {
        let file = |key| listener.key(key).string().map(PathBuf::from);
        let needed = |key, what| listener.key(key).required(what).string().map(PathBuf::from);
        let certificate = needed("certificate", "the file of the certificate that peers are shown");
        let key = needed("key", "the file of its private key");
        let (authority, clients) = (file("authority"), file("clients"));
        let domains = read_domains(listener);
        if authority.is_none() && !domains.is_empty() {
            listener.key("domains").fault("needs `authority`: without it nobody is connected to");
        }
        let files = SipTlsFiles { certificate: certificate?, key: key?, authority, clients };
        match Self::load(files, domains, unix_ms()) {
            Ok(tls) => Some(tls),
            Err(errors) => {
                for error in errors {
                    let key = match error.file {
                        TlsFile::Authority => "authority",
                        TlsFile::Clients => "clients",
                        TlsFile::Certificate => "certificate",
                        TlsFile::Key => "key",
                    };
                    listener.key(key).fault(format!("is of no use: {error}"));
                }
                None
            }
        }
    }

    /// Makes it a fault of a listener's table that it has what only one with TLS needs.
    pub fn forbid(listener: &Table<'_>) {
        for key in KEYS {
            if listener.key(key).is_present() {
                listener.key(key).fault("is for a listener with `transport = \"tls\"`");
            }
        }
    }
}

fn read_domains(listener: &Table<'_>) -> BTreeMap<SocketAddr, Domain> {
    let mut domains = BTreeMap::new();
    for entry in listener.tables("domains") {
        let at = entry.key("at").required("an address with its port").remote();
        let name = entry.key("name").required("the name that its certificate must have");
        let name = name.parsed("the name of a host or domain", |text| text.parse().ok());
        if let (Some(at), Some(name)) = (at, name)
            && domains.insert(at, name).is_some()
        {
            entry.fault(format!("names {at} a second time"));
        }
    }
    domains
}

const KEYS: [&str; 5] = ["certificate", "key", "authority", "clients", "domains"];
