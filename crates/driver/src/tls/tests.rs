//! Files of certificates, right and wrong.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use super::authority::{DAYS, IssueError, files, issue, issue_sip};
use super::*;
use crate::run::unix_ms;

pub(crate) const DAY_MS: u64 = 86_400_000;

/// A folder with an authority, taken away in the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("holdline-tls-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // It may be there from a test that was cut short.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// Makes a certificate that holds for a year from `unix_ms` on.
    pub(crate) fn issue(&self, node: u16, unix_ms: u64) -> TlsFiles {
        issue(&self.0, &[NodeId(node)], DAYS, unix_ms).unwrap().remove(0)
    }

    /// Makes a certificate that holds, and loads it.
    pub(crate) fn tls(&self, node: u16) -> Tls {
        Tls::load(&self.issue(node, unix_ms()), NodeId(node), unix_ms()).unwrap()
    }

    /// Makes a certificate of a listener for SIP that holds for a year from `unix_ms` on.
    pub(crate) fn sip(&self, domain: &str, unix_ms: u64) -> SipTlsFiles {
        issue_sip(&self.0, &[domain.parse().unwrap()], DAYS, unix_ms).unwrap().remove(0)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o600)).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is wrong with the files of node 7, each with the file that it is wrong with.
fn wrong(files: &TlsFiles, unix_ms: u64) -> Vec<(TlsFile, String)> {
    let errors = Tls::load(files, NodeId(7), unix_ms).unwrap_err();
    errors.into_iter().map(|error| (error.file, error.kind.to_string())).collect()
}

#[test]
fn what_was_issued_is_believed_for_its_node_and_its_time_alone() {
    let (folder, now) = (Folder::new("believed"), unix_ms());
    let files = folder.issue(7, now);
    let year = u64::from(DAYS) * DAY_MS;

    let tls = Tls::load(&files, NodeId(7), now).unwrap();
    assert!(Tls::load(&files, NodeId(7), now + year - DAY_MS).is_ok());
    let days: Vec<i64> = tls.expiries().iter().map(|one| one.days_left(now - 1000)).collect();
    assert_eq!(days, [3650, 365]);
    assert_eq!(
        wrong(&files, now + year + DAY_MS / 2),
        [(TlsFile::Certificate, "expired 1 days ago: issue another".into())]
    );
    assert_eq!(
        wrong(&files, now - 2 * DAY_MS),
        [(TlsFile::Certificate, "is not valid yet: check the clocks".into())]
    );
    assert_eq!(
        wrong(&files, now + 11 * year - DAY_MS / 2),
        [(TlsFile::Authority, "expired 365 days ago: issue another".into())]
    );
}

#[test]
fn every_file_that_is_of_no_use_is_told_at_once() {
    let (folder, now) = (Folder::new("no-use"), unix_ms());
    let sound = folder.issue(7, now);
    let nothing = folder.write("empty", "nothing");
    let files =
        TlsFiles { authority: folder.path("none"), certificate: nothing.clone(), key: nothing };
    let told = wrong(&files, now);
    assert!(told[0].1.starts_with("cannot be read: No such file"), "{told:?}");
    assert_eq!(told[1], (TlsFile::Certificate, "holds no certificate in PEM form".into()));
    assert_eq!(told[2], (TlsFile::Key, "holds no private key in PEM form".into()));

    std::fs::set_permissions(&sound.key, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(
        wrong(&sound, now)[0].1,
        "can be read by everybody: take the right away with chmod o-r"
    );
}

#[test]
fn a_certificate_that_peers_would_refuse_is_refused_at_home() {
    let (folder, other, now) = (Folder::new("home"), Folder::new("elsewhere"), unix_ms());
    let (own, third) = (folder.issue(7, now), folder.issue(3, now));
    let foreign = other.issue(7, now);

    let files = TlsFiles { key: third.key.clone(), ..own.clone() };
    assert_eq!(wrong(&files, now)[0].0, TlsFile::Key);
    assert!(wrong(&files, now)[0].1.starts_with("is not the key of the certificate"));
    assert_eq!(
        wrong(&third, now),
        [(TlsFile::Certificate, "names node-3.holdline, not node-7.holdline".into())]
    );
    let files = TlsFiles { authority: own.authority.clone(), ..foreign.clone() };
    assert_eq!(wrong(&files, now), [(TlsFile::Certificate, "is from an unknown authority".into())]);

    // While one authority replaces the other, both stand in the file.
    let both = [&own, &foreign].map(|one| std::fs::read_to_string(&one.authority).unwrap());
    let authority = folder.write("both.pem", &both.concat());
    assert!(Tls::load(&TlsFiles { authority, ..foreign }, NodeId(7), now).is_ok());
}

#[test]
fn a_certificate_for_one_end_only_is_refused() {
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
    let (folder, now) = (Folder::new("usage"), unix_ms());
    let files = folder.issue(1, now);
    let read = |name| std::fs::read_to_string(folder.path(name)).unwrap();
    let authority = KeyPair::from_pem(&read("ca.key")).unwrap();
    let authority = Issuer::from_ca_cert_pem(&read("ca.pem"), authority).unwrap();
    for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name(NodeId(7))]).unwrap();
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &authority).unwrap();
        let files = TlsFiles {
            authority: files.authority.clone(),
            certificate: folder.write("one.pem", &certificate.pem()),
            key: folder.write("one.key", &key.serialize_pem()),
        };
        let told = wrong(&files, now);
        assert!(told[0].1.starts_with("lacks a usage"), "{told:?}");
    }
}

#[test]
fn an_authority_stays_and_issues_for_more_nodes() {
    let (folder, now) = (Folder::new("stays"), unix_ms());
    folder.issue(1, now);
    let before = std::fs::read(folder.path("ca.pem")).unwrap();
    let later = folder.issue(7, now + DAY_MS);

    assert_eq!(std::fs::read(folder.path("ca.pem")).unwrap(), before);
    assert!(Tls::load(&later, NodeId(7), now + DAY_MS).is_ok());
    for name in ["ca.key", "node-1.key", "node-7.key"] {
        let mode = std::fs::metadata(folder.path(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // It ends with its authority.
    let last = folder.issue(9, now + 3640 * DAY_MS);
    let tls = Tls::load(&last, NodeId(9), now + 3640 * DAY_MS).unwrap();
    assert!(tls.expiries().iter().all(|one| one.days_left(now) == 3649));
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let (folder, now) = (Folder::new("there"), unix_ms());
    folder.issue(1, now);
    let nodes = |ids: &[u16]| {
        let nodes: Vec<NodeId> = ids.iter().copied().map(NodeId).collect();
        issue(&folder.0, &nodes, 30, now)
    };
    assert!(matches!(nodes(&[2, 1]), Err(IssueError::Taken(_))));
    assert!(!files(&folder.0, NodeId(2)).key.exists(), "nothing was written");
    assert_eq!(nodes(&[2, 2, 3]).unwrap().len(), 2);

    std::fs::rename(folder.path("ca.key"), folder.path("kept.key")).unwrap();
    assert!(matches!(nodes(&[4]), Err(IssueError::Half(_))));
    std::fs::copy(folder.path("node-3.key"), folder.path("ca.key")).unwrap();
    assert!(matches!(nodes(&[4]), Err(IssueError::Authority { .. })));
    assert!(!files(&folder.0, NodeId(4)).key.exists());
}
