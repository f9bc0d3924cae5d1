use std::net::{IpAddr, Ipv4Addr};

use super::{AnswerError, Direction, Edit, NextError, Sdp, SdpErrorKind, check_answer, check_next};

const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

const OFFER: &[u8] = b"v=0\r\n\
o=- 7 18446744073709551619 IN IP4 192.0.2.1\r\n\
s=call\r\n\
c=IN IP4 192.0.2.1\r\n\
t=0 0\r\n\
m=audio 4000 RTP/AVP 0 111 101\r\n\
a=rtpmap:0 PCMU/8000\r\n\
a=rtpmap:111 opus/48000/2\r\n\
a=fmtp:111 useinbandfec=1\r\n\
a=rtpmap:101 telephone-event/8000\r\n\
a=fmtp:101 0-15\r\n\
a=rtcp:4001 IN IP4 192.0.2.1\r\n\
a=sendonly\r\n\
y=0100000001\r\n\
m=video 0 RTP/AVP 96\r\n\
c=IN IP6 2001:db8::1\r\n\
a=rtpmap:96 H264/90000\r\n";

fn sdp(text: &[u8]) -> Sdp<'_> {
    Sdp::parse(text).expect("a good description")
}

fn edited(text: &[u8], edit: impl FnOnce(&mut Edit<'_, '_>)) -> String {
    let sdp = sdp(text);
    let mut changes = Edit::new(&sdp);
    edit(&mut changes);
    String::from_utf8(changes.finish()).expect("text")
}

#[test]
fn a_description_says_what_its_lines_say() {
    let sdp = sdp(OFFER);
    let audio = sdp.medium(0).expect("audio");
    assert_eq!(audio.kind(), b"audio");
    assert_eq!(audio.port(), 4000);
    assert_eq!(audio.payload_types().collect::<Vec<_>>(), [0, 111, 101]);
    assert_eq!(audio.direction(), Direction::SendOnly);
    assert!(audio.is_hold());
    let opus = audio.rtpmap(111).expect("opus");
    assert_eq!((opus.encoding, opus.clock, opus.channels), (&b"opus"[..], 48_000, 2));
    assert!(audio.codec(8).is_some_and(|codec| codec.encoding == b"PCMA"));
    assert_eq!((audio.rtpmap(8), audio.codec(96)), (None, None));
    assert_eq!(audio.fmtp(101), Some(&b"0-15"[..]));
    assert_eq!(audio.rtcp(), Some((4001, "192.0.2.1".parse().ok())));
    assert_eq!(audio.connection().and_then(|c| c.ip()), "192.0.2.1".parse().ok());
    let video = sdp.medium(1).expect("video");
    assert_eq!(video.connection().and_then(|c| c.ip()), "2001:db8::1".parse().ok());
    assert_eq!(video.direction(), Direction::SendRecv);
    assert_eq!(sdp.media_len(), 2);
}

#[test]
fn an_edit_without_changes_changes_nothing() {
    assert_eq!(edited(OFFER, |_| {}).as_bytes(), OFFER);
}

#[test]
fn moving_to_a_gateway_touches_only_version_addresses_and_ports() {
    let moved = edited(OFFER, |edit| {
        edit.next_version();
        edit.all_connections(GATEWAY);
        edit.port(0, 10_000);
        edit.rtcp(0, Some((10_001, None)));
        edit.narrow(0, &[0, 101]);
    });
    let expected = String::from_utf8_lossy(OFFER)
        .replace("18446744073709551619", "18446744073709551620")
        .replace("c=IN IP4 192.0.2.1", "c=IN IP4 203.0.113.9")
        .replace("c=IN IP6 2001:db8::1", "c=IN IP4 203.0.113.9")
        .replace("m=audio 4000 RTP/AVP 0 111 101", "m=audio 10000 RTP/AVP 0 101")
        .replace("a=rtcp:4001 IN IP4 192.0.2.1", "a=rtcp:10001")
        .replace("a=rtpmap:111 opus/48000/2\r\na=fmtp:111 useinbandfec=1\r\n", "");
    assert_eq!(moved, expected);
}

#[test]
fn a_version_of_nines_grows_a_digit() {
    let text = edited(b"v=0\no=- 1 999 IN IP4 h\n", |edit| edit.next_version());
    assert_eq!(text, "v=0\no=- 1 1000 IN IP4 h\n");
}

#[test]
fn lines_that_are_missing_are_added_where_they_belong() {
    let text =
        edited(b"v=0\no=- 1 1 IN IP4 h\ns=-\nt=0 0\nm=audio 4 RTP/AVP 0\nm=video 5 x 1", |e| {
            e.all_connections(GATEWAY);
            e.direction(0, Direction::RecvOnly);
            e.direction(0, Direction::Inactive);
            e.connection(1, GATEWAY);
            e.set_attribute(1, "label", b"a\r\nm=evil");
        });
    assert_eq!(
        text,
        "v=0\no=- 1 1 IN IP4 h\ns=-\nc=IN IP4 203.0.113.9\nt=0 0\nm=audio 4 RTP/AVP 0\na=inactive\n\
         m=video 5 x 1\nc=IN IP4 203.0.113.9\na=label:a  m=evil"
    );
}

#[test]
fn narrowing_to_nothing_is_refused() {
    assert_eq!(edited(OFFER, |edit| edit.narrow(0, &[9])).as_bytes(), OFFER);
    assert_eq!(edited(OFFER, |edit| edit.narrow(7, &[9])).as_bytes(), OFFER);
}

#[test]
fn attributes_that_name_other_ways_can_be_taken_away() {
    let text = edited(
        b"v=0\r\no=- 1 1 IN IP4 h\r\na=ice-lite\r\nm=audio 4 RTP/AVP 0\r\na=candidate:1\r\na=candidates\r\n",
        |edit| {
            edit.remove_all_attributes("candidate");
            edit.remove_all_attributes("ice-lite");
        },
    );
    assert_eq!(text, "v=0\r\no=- 1 1 IN IP4 h\r\nm=audio 4 RTP/AVP 0\r\na=candidates\r\n");
}

#[test]
fn a_line_can_follow_a_last_line_that_was_taken_away() {
    let text = edited(b"v=0\no=- 1 1 IN IP4 h\nm=audio 4 RTP/AVP 0\na=ice-lite", |edit| {
        edit.remove_all_attributes("ice-lite");
        edit.direction(0, Direction::Inactive);
    });
    assert_eq!(text, "v=0\no=- 1 1 IN IP4 h\nm=audio 4 RTP/AVP 0\na=inactive\n");
}

#[test]
fn what_is_no_description_is_refused() {
    let kind = |text: &[u8]| Sdp::parse(text).map_err(|error| error.kind).err();
    assert_eq!(kind(b""), Some(SdpErrorKind::Version));
    assert_eq!(kind(b"v=1\r\n"), Some(SdpErrorKind::Version));
    assert_eq!(kind(b"v=0\r\nm =audio 1 RTP/AVP 0\r\n"), Some(SdpErrorKind::Line));
    assert_eq!(kind(b"v=0\r\n"), Some(SdpErrorKind::Origin));
    assert_eq!(kind(b"v=0\r\no=- 1 1 IN IP4 h\r\nm=audio x RTP/AVP 0"), Some(SdpErrorKind::Media));
    assert_eq!(kind(b"v=0\r\no=- 1 1 IN IP4 h\r\nm=audio 1 RTP/AVP"), Some(SdpErrorKind::Media));
    assert_eq!(kind(&[b"v=0\n".repeat(3000), vec![]].concat()), Some(SdpErrorKind::TooLong));
}

#[test]
fn old_phones_hold_by_address() {
    let text = b"v=0\no=- 1 1 IN IP4 h\nc=IN IP4 0.0.0.0\nm=audio 4 RTP/AVP 0\n";
    assert!(sdp(text).medium(0).is_some_and(|audio| audio.is_hold()));
}

#[test]
fn an_answer_must_mirror_its_offer() {
    let check = |answer: &str| {
        let answer = format!("v=0\no=- 1 1 IN IP4 h\n{answer}");
        check_answer(&sdp(OFFER), &sdp(answer.as_bytes()))
    };
    let video = "m=video 0 RTP/AVP 96\n";
    let ok = format!("m=audio 5 RTP/AVP 0\na=recvonly\n{video}");
    assert_eq!(check(&ok), Ok(()));
    assert_eq!(check(video), Err(AnswerError::MediaCount { offered: 2, answered: 1 }));
    assert_eq!(check(&ok.replace("a=recvonly\n", "")), Err(AnswerError::Direction(0)));
    assert_eq!(check(&ok.replace("AVP 0", "AVP 8")), Err(AnswerError::NoFormat(0)));
    let offer = String::from_utf8_lossy(OFFER).replace("RTP/AVP", "Rtp/avp");
    let answer = format!("v=0\no=- 1 1 IN IP4 h\n{}", ok.replace("AVP 0", "AVP 8"));
    let checked = check_answer(&sdp(offer.as_bytes()), &sdp(answer.as_bytes()));
    assert_eq!(checked, Err(AnswerError::NoFormat(0)), "in letters of either case");
    assert_eq!(check(&ok.replace("video 0", "video 9")), Err(AnswerError::NotOffered(1)));
    assert_eq!(check(&ok.replace("audio", "text")), Err(AnswerError::Kind(0)));
}

#[test]
fn an_answer_may_number_the_codecs_anew() {
    let check = |answer: &str| {
        let answer = format!("v=0\no=- 1 1 IN IP4 h\n{answer}a=recvonly\nm=video 0 RTP/AVP 96\n");
        check_answer(&sdp(OFFER), &sdp(answer.as_bytes()))
    };
    assert_eq!(check("m=audio 5 RTP/AVP 96\na=rtpmap:96 OPUS/48000/2\n"), Ok(()));
    assert_eq!(check("m=audio 5 RTP/AVP 97\na=rtpmap:97 pcmu/8000\n"), Ok(()));
    assert_eq!(check("m=audio 5 RTP/AVP 8 99 0\na=rtpmap:99 AMR/8000\n"), Ok(()), "and add some");
    let none = Err(AnswerError::NoFormat(0));
    assert_eq!(check("m=audio 5 RTP/AVP 111\na=rtpmap:111 opus/48000/1\n"), none);
    assert_eq!(check("m=audio 5 RTP/AVP 111\na=rtpmap:111 speex/16000\n"), none, "same number");
    assert_eq!(check("m=audio 5 RTP/AVP 111\n"), Ok(()), "as the offer explains it");
    assert_eq!(check("m=audio 5 RTP/AVP 112\n"), none, "nobody knows what that is");
}

#[test]
fn directions_meet_as_the_rfc_says() {
    use Direction::{Inactive, RecvOnly, SendOnly, SendRecv};
    assert_eq!(SendRecv.answered_with(SendOnly), SendOnly);
    assert_eq!(SendOnly.answered_with(SendRecv), RecvOnly);
    assert_eq!(RecvOnly.answered_with(SendRecv), SendOnly);
    assert_eq!(SendOnly.answered_with(SendOnly), Inactive);
    assert_eq!(SendOnly.reversed(), RecvOnly);
}

#[test]
fn a_description_must_follow_the_one_before_it() {
    let text =
        |version: &str, media: &str| format!("v=0\no=- 1 {version} IN IP4 h\ns=-\nt=0 0\n{media}");
    let check = |last: &str, next: &str| check_next(&sdp(last.as_bytes()), &sdp(next.as_bytes()));
    let audio = "m=audio 4000 RTP/AVP 0 96\na=rtpmap:96 opus/48000/2\n";
    let first = text("9", audio);
    assert_eq!(check(&first, &first), Ok(()), "nothing changed");
    let held = format!("{audio}a=sendonly\n");
    assert_eq!(check(&first, &text("10", &held)), Ok(()));
    assert_eq!(check(&first, &text("010", &held)), Ok(()));
    assert_eq!(check(&first, &text("9", &held)), Err(NextError::Version));
    assert_eq!(check(&first, &text("11", &held)), Err(NextError::Version));
    assert_eq!(check(&first, &text("8", audio)), Err(NextError::Version));
    let other = text("10", audio).replace("o=- 1", "o=- 2");
    assert_eq!(check(&first, &other), Err(NextError::Origin));
    assert_eq!(check(&first, &text("10", "")), Err(NextError::FewerMedia));
    assert_eq!(
        check(&first, &text("10", &audio.replace("opus", "speex"))),
        Err(NextError::Codec(0))
    );
    let over = text("10", &audio.replace("4000", "0"));
    assert_eq!(check(&first, &over), Ok(()));
    let reused = text("11", "m=video 5000 RTP/AVP 96\na=rtpmap:96 VP8/90000\n");
    assert_eq!(check(&over, &reused), Ok(()), "the place is free");
    let more = text("10", &format!("{audio}m=video 5000 RTP/AVP 97\n"));
    assert_eq!(check(&first, &more), Ok(()));
    let fax = text("10", "m=image 4000 udptl t38\n");
    assert_eq!(check(&first, &fax), Ok(()), "a call turns to fax (RFC 3264 §8.3.3)");
    assert_eq!(check(&fax, &text("11", audio)), Ok(()), "and back");
}
