use super::{KNOWN, Name, OTHER};

#[test]
fn every_known_name_is_found_in_any_case() {
    for (text, _) in KNOWN {
        for spelled in [text.to_owned(), text.to_ascii_uppercase(), text.to_ascii_lowercase()] {
            let name = Name::new(spelled.as_bytes());
            assert_ne!(name.id, OTHER, "{text}");
            assert_eq!(name.as_bytes(), text.as_bytes());
        }
    }
}

#[test]
fn a_compact_form_is_the_same_name() {
    assert_eq!(Name::new(b"v"), Name::VIA);
    assert_eq!(Name::new(b"V"), Name::VIA);
    assert_eq!(Name::new(b"x"), Name::SESSION_EXPIRES);
    assert_eq!(Name::new(b"z").id, OTHER);
}

#[test]
fn unknown_names_are_equal_when_their_letters_are() {
    assert_eq!(Name::new(b"X-Thing"), Name::new(b"x-thING"));
    assert_ne!(Name::new(b"X-Thing"), Name::new(b"X-Things"));
    assert_ne!(Name::new(b"C%6Fntact"), Name::CONTACT);
}
