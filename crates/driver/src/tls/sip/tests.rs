//! Who is believed to be the next hop.

use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, KeyPair, SanType};

use super::next_hop::check_names;
use super::*;
use crate::run::unix_ms;
use crate::tls::tests::{DAY_MS, Folder};

#[test]
fn a_next_hop_is_believed_by_its_alternative_names_alone_and_by_no_wildcard() {
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let uri = |name: &str| SanType::URI(name.try_into().unwrap());
    let ip = |ip: &str| SanType::IpAddress(ip.parse().unwrap());
    let cases = [
        (vec![dns("sip.example.com")], "sip.example.com", true),
        (vec![dns("SIP.Example.com")], "sip.example.COM", true),
        (vec![dns("other.example"), uri("sip:example.com")], "example.com", true),
        (vec![uri("SIP:Example.com")], "example.com", true),
        (vec![ip("192.0.2.1")], "192.0.2.1", true),
        (vec![ip("2001:db8::1")], "2001:db8::1", true),
        (vec![dns("*.example.com")], "sip.example.com", false),
        (vec![uri("sips:example.com")], "example.com", false),
        (vec![uri("sip:alice@example.com")], "example.com", false),
        (vec![uri("https://example.com")], "example.com", false),
        (vec![dns("example.com")], "sip.example.com", false),
        (vec![dns("sip.example.com.evil.example")], "sip.example.com", false),
        (vec![dns("192.0.2.1")], "192.0.2.1", false),
        (vec![ip("192.0.2.2")], "192.0.2.1", false),
        (vec![uri("sip:192.0.2.1")], "192.0.2.1", false),
        // The subject's own name, which all of them have, is not looked at.
        (vec![], "subject.example.com", false),
    ];
    for (names, expected, fits) in cases {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "subject.example.com");
        params.subject_alt_names = names;
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let name = ServerName::try_from(expected).unwrap();
        let checked = check_names(certificate.der(), &name);
        assert_eq!(checked.is_ok(), fits, "{expected}: {:?}", params.subject_alt_names);
    }
}

#[test]
fn the_files_of_a_listener_are_said_to_be_wrong_all_at_once() {
    let (folder, now) = (Folder::new("sip"), unix_ms());
    let files = folder.sip("sip.example.com", now);
    let load = |files: &SipTlsFiles, at| SipTls::load(files.clone(), BTreeMap::new(), at);
    let wrong = |files: &SipTlsFiles, at| {
        let errors = load(files, at).unwrap_err();
        errors.into_iter().map(|one| (one.file, one.kind.to_string())).collect::<Vec<_>>()
    };
    let tls = load(&files, now).unwrap();
    assert!(tls.connects());
    let days: Vec<i64> = tls.expiries().iter().map(|one| one.days_left(now - 1000)).collect();
    assert_eq!(days, [3650, 365]);
    let alone = SipTlsFiles { authority: None, ..files.clone() };
    assert!(!load(&alone, now).unwrap().connects());

    let none = SipTlsFiles {
        certificate: folder.path("no.pem"),
        key: folder.path("no.key"),
        authority: Some(folder.path("no.ca")),
        clients: Some(folder.path("no.clients")),
    };
    let which: Vec<TlsFile> = wrong(&none, now).into_iter().map(|(file, _)| file).collect();
    assert_eq!(which, [TlsFile::Certificate, TlsFile::Key, TlsFile::Authority, TlsFile::Clients]);
    let late = "expired 2 days ago: issue another";
    let at = now + 366 * DAY_MS + DAY_MS / 2;
    assert_eq!(wrong(&files, at), [(TlsFile::Certificate, late.into())]);
    let early = "is not valid yet: check the clocks";
    assert_eq!(wrong(&files, now - 2 * DAY_MS), [(TlsFile::Certificate, early.into())]);

    let other = folder.sip("other.example.com", now);
    let mixed = SipTlsFiles { key: other.key, ..files.clone() };
    let mismatch = "is not the key of the certificate: name two files that were made together";
    assert_eq!(wrong(&mixed, now), [(TlsFile::Key, mismatch.into())]);

    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o644)).unwrap();
    let public = "can be read by everybody: take the right away with chmod o-r";
    assert_eq!(wrong(&files, now), [(TlsFile::Key, public.into())]);
}

#[test]
fn names_are_of_hosts_or_addresses() {
    for name in ["sip.example.com", "192.0.2.1", "2001:db8::1", "a"] {
        assert_eq!(name.parse::<Domain>().unwrap().to_string(), name);
    }
    for name in ["", "*.example.com", "a b", "../etc", "sip:example.com"] {
        assert_eq!(name.parse::<Domain>(), Err(DomainError), "{name}");
    }
}
