//! The bytes of each frame kind about cluster documents.

use election::Segment;
use rm::cluster::documents::{DocumentFrame, DocumentHeld, DocumentPart, DocumentWanted};

use crate::frames::check;

#[test]
fn what_is_said_about_documents_has_its_golden_bytes() {
    let (version, digest) = (7, 0x0123_4567_89ab_cdef);
    let site = "london".to_owned();
    let held = DocumentHeld { version, digest, len: 70_000, segment: Segment(3), site };
    let wanted = DocumentWanted { version, digest, offset: 32_768 };
    let part = DocumentPart { version, digest, offset: 32_768, bytes: b"[[tenant]]\n".to_vec() };
    check(&held);
    check(&wanted);
    check(&part);

    for frame in
        [DocumentFrame::Held(held), DocumentFrame::Wanted(wanted), DocumentFrame::Part(part)]
    {
        let (kind, payload) = frame.encode();
        assert_eq!(DocumentFrame::decode(kind, &payload), Some(frame));
        assert_eq!(DocumentFrame::decode(kind + 0x10, &payload), None, "another kind");
        assert_eq!(DocumentFrame::decode(kind, &payload[..payload.len() - 1]), None, "cut off");
    }
}
