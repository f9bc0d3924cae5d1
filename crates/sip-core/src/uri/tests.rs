use super::{Scheme, Uri, unescape};

fn uri(text: &str) -> Uri<'_> {
    Uri::parse(text.as_bytes()).expect("a good uri")
}

fn same(a: &str, b: &str) -> bool {
    let (a, b) = (uri(a), uri(b));
    assert_eq!(a.is_equivalent(&b), b.is_equivalent(&a), "comparison is symmetric");
    a.is_equivalent(&b)
}

#[test]
fn the_user_part_may_hold_semicolons_and_question_marks() {
    let parsed = uri("sip:user;par=u%40example.net@example.com");
    assert_eq!(parsed.user_unescaped().as_deref(), Some(&b"user;par=u@example.net"[..]));
    assert_eq!(parsed.host().map(|h| h.name()), Some(&b"example.com"[..]));
    assert_eq!(parsed.params().into_iter().count(), 0);
    assert_eq!(uri("sip:a?b@example.com").user(), Some(&b"a?b"[..]));
}

#[test]
fn an_ipv6_reference_keeps_its_port_apart() {
    let parsed = uri("sip:[2001:db8::10]:5070;lr");
    assert_eq!(parsed.host().map(|h| h.name()), Some(&b"2001:db8::10"[..]));
    assert_eq!(parsed.port(), Some(5070));
    assert_eq!(parsed.param(b"LR"), Some(&b""[..]));
    assert_eq!(uri("sip:[2001:db8::10:5070]").port(), None);
    assert!(uri("sip:a@b;maddr=[2001:db8::1]").param(b"maddr").is_some());
}

#[test]
fn what_is_no_uri_is_refused() {
    for text in [
        "",
        "sip",
        "sip:",
        "sip:@host",
        "sip:user@",
        "sip:2001:db8::10",
        "sip:u@[2001:db8:::192.0.2.1]",
        "sip:u@h:",
        "sip:u@h:70000",
        "sip:u@h:5060x",
        "sip:u@h;;a",
        "sip:u@h;=a",
        "sip:u@h ;lr",
        "<sip:u@h>",
        "tel:",
        "tel:hello",
        "1ip:u@h",
        "sip:u@h;a=\"b\"",
        "sip:u@h\0",
    ] {
        assert!(Uri::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn unknown_schemes_stay_opaque() {
    assert_eq!(uri("soap.beep://192.0.2.103:3002").scheme(), Scheme::Other);
    assert_eq!(uri("soap.beep://192.0.2.103:3002").scheme_text(), b"soap.beep");
    assert_eq!(uri("tel:+1-201-555-0123;phone-context=example.com").scheme(), Scheme::Tel);
}

#[test]
fn escapes_resolve_once_and_only_when_whole() {
    assert_eq!(&*unescape(b"%2541%4"), b"%41%4");
    assert_eq!(&*unescape(b"null-%00-null"), b"null-\0-null");
    assert_eq!(&*unescape(b"%zz%"), b"%zz%");
}

#[test]
fn equal_uris_of_the_rfc_are_equal() {
    assert!(same("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"));
    assert!(same("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"));
    assert!(same("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;newparam=5"));
    assert!(same(
        "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
        "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com"
    ));
    assert!(same(
        "sip:alice@atlanta.com?subject=a&priority=b",
        "sip:alice@atlanta.com?priority=b&subject=a"
    ));
    assert!(same("sip:a@[2001:db8::1]", "sip:a@[2001:0DB8:0::0001]"));
    assert!(same("tel:+1-201-555-0123", "tel:+12015550123"));
}

#[test]
fn different_uris_of_the_rfc_differ() {
    assert!(!same("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"));
    assert!(!same("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"));
    assert!(!same("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"));
    assert!(!same("sip:bob@biloxi.com;transport=udp", "sip:bob@biloxi.com;transport=tcp"));
    assert!(!same("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"));
    assert!(!same("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"));
    assert!(!same("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"));
    assert!(!same("sip:a@b", "sips:a@b"));
}

#[test]
fn separators_for_the_eye_do_not_count_in_telephone_numbers() {
    assert!(same("tel:7042;phone-context=+1-914-555", "tel:70-42;phone-context=+1914(555)"));
    assert!(same("tel:+1-201;ext=1-2.3", "tel:+1201;EXT=123"));
    assert!(same(
        "tel:863-1234;phone-context=Example.com",
        "tel:8631234;Phone-Context=example.COM"
    ));
    assert!(!same("tel:1;phone-context=a-b.example", "tel:1;phone-context=ab.example"));
    assert!(!same("tel:1;isub=1-2", "tel:1;isub=12") && !same("tel:1;ext=12", "tel:1;ext=13"));
    assert!(!same("tel:1;phone-context=+12", "tel:1;phone-context=+13"));
    assert!(!same("tel:+12", "tel:12") && !same("tel:1;ext=2", "tel:1"));
    assert!(!same("sip:a@b;ext=1-2", "sip:a@b;ext=12"), "no number there");
}

#[test]
fn an_escape_is_its_character_unless_that_is_reserved() {
    assert!(same("sip:%61%2d@b", "sip:a%2D@b") && same("sip:a%2d@b", "sip:a-@b"));
    assert!(same("sip:a%2fb@c", "sip:a%2Fb@c"));
    assert!(!same("sip:a%2Fb@c", "sip:a/b@c"), "a slash may mean something");
    assert!(!same("sip:a%252Fb@c", "sip:a%2Fb@c") && !same("sip:%2561@c", "sip:a@c"));
    assert!(!same("sip:b;x=%3B", "sip:b;x=%3D") && same("sip:b;x=%7e", "sip:b;%58=~"));
}
