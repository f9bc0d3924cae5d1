use std::time::{Duration, Instant};

use super::{
    Notice, NotifyError, Progress, ReferError, Referee, RefereeOutput, Referrer, ReferrerOutput,
};
use crate::{Message, Method, Name, Writer};

const LIFE: Duration = Duration::from_secs(180);
const PATIENCE: Duration = Duration::from_secs(32);

#[test]
fn a_transfer_is_told_from_its_start_to_its_end() {
    let mut run = Run::new("");
    assert_eq!(run.answer().status(), Some(202));
    run.referee.report(180, b"Ringing\r\nEvil: 1");
    run.referee.report(200, b"OK");
    run.referee.report(500, b"never told");
    let told = run.tell();
    assert_eq!(
        told,
        [
            progress(100, "Trying"),
            progress(180, "Ringing Evil: 1"),
            progress(200, "OK"),
            ReferrerOutput::Ended { status: Some(200) },
        ]
    );
    assert_eq!((run.referee.poll_timeout(), run.referrer.poll_timeout()), (None, None));
}

#[test]
fn a_notification_names_its_subscription_and_state() {
    let mut run = Run::new("");
    run.referee.report(486, b"Busy Here");
    let notices = run.notices();
    let written: Vec<_> = notices.iter().map(notify).collect();
    let said = |index: usize, name: Name<'static>| {
        String::from_utf8_lossy(Message::header(&written[index], name).unwrap_or_default())
            .into_owned()
    };
    assert_eq!(said(0, Name::EVENT), "refer;id=7");
    assert_eq!(said(0, Name::SUBSCRIPTION_STATE), "active;expires=180");
    assert_eq!(said(0, Name::CONTENT_TYPE), "message/sipfrag;version=2.0");
    assert_eq!(said(1, Name::SUBSCRIPTION_STATE), "terminated;reason=noresource");
    assert_eq!(written[1].body(), b"SIP/2.0 486 Busy Here\r\n");
    assert!(!notices[0].is_last() && notices[1].is_last());
}

#[test]
fn without_a_subscription_nothing_is_told() {
    let mut run = Run::new("Refer-Sub: FALSE ;x=1\r\nSupported: norefersub\r\n");
    let answer = run.answer();
    assert_eq!(answer.header(Name::REFER_SUB), Some(&b"false"[..]));
    run.referee.report(200, b"OK");
    assert!(!run.referee.is_active() && run.referee.poll_timeout().is_none());
    assert_eq!(run.tell(), []);
    run.referrer.handle_response(Some(&answer));
    assert_eq!(run.learn(), [ReferrerOutput::Ended { status: None }]);
}

#[test]
fn a_refer_that_asks_for_less_may_still_be_given_a_subscription() {
    // Its sender wrote `Refer-Sub: false`, and the other side does not know it.
    let mut run = Run::new("");
    run.referrer.handle_response(Some(&run.answer()));
    assert_eq!(run.learn(), []);
    assert_eq!(run.tell(), [progress(100, "Trying")]);
}

#[test]
fn a_refer_must_ask_for_one_thing() {
    let new = |text: String| {
        let refer = Message::parse(text.into_bytes().into()).expect("a message");
        Referee::new(an_instant(), &refer, LIFE).map(|_| ()).err()
    };
    let good = refer("").bytes().escape_ascii().to_string().replace("\\r\\n", "\r\n");
    assert_eq!(new(good.clone()), None);
    let line = "Refer-To: <sip:carol@example.com>\r\n";
    assert_eq!(new(good.replace(line, "")), Some(ReferError::ReferTo));
    assert_eq!(new(good.replace(line, &line.repeat(2))), Some(ReferError::ReferTo));
    assert_eq!(new(good.replace(line, "r: <sip:>\r\n")), Some(ReferError::ReferTo));
    assert_eq!(new(good.replace("REFER", "INVITE")), Some(ReferError::NotRefer));
}

#[test]
fn a_refused_refer_tells_nothing() {
    for answer in [Some(603), None] {
        let mut run = Run::new("");
        let answer =
            answer.map(|status| Writer::answer(&refer(""), status, b"No", Some(b"t")).finish());
        run.referrer.handle_response(answer.as_ref());
        assert_eq!(run.learn(), [ReferrerOutput::Ended { status: None }]);
        let late = notify(&run.notices()[0]);
        assert_eq!(run.referrer.handle_notify(run.now, &late), Err(NotifyError::Unknown));
    }
}

#[test]
fn who_is_told_nothing_in_time_stops_waiting() {
    let mut run = Run::new("");
    let at = run.referrer.poll_timeout().expect("it waits");
    assert_eq!(at, run.now + PATIENCE);
    run.referrer.handle_timeout(at - Duration::from_millis(1));
    assert_eq!(run.learn(), []);
    run.referrer.handle_timeout(at);
    run.referrer.handle_timeout(at);
    assert_eq!(run.learn(), [ReferrerOutput::Ended { status: None }]);

    let mut run = Run::new("");
    run.tell();
    assert_eq!(run.referrer.poll_timeout(), Some(run.now + LIFE), "as the NOTIFY says");
    run.referrer.handle_timeout(run.now + LIFE);
    assert_eq!(run.learn(), [ReferrerOutput::Ended { status: None }]);
}

#[test]
fn a_subscription_ends_in_time_and_can_be_refreshed() {
    let mut run = Run::new("");
    let subscribe = |expires: &str| {
        let text = format!("SUBSCRIBE sip:a SIP/2.0\r\n{expires}\r\n");
        Message::parse(text.into_bytes().into()).expect("a message")
    };
    let later = run.now + Duration::from_secs(100);
    assert_eq!(run.referee.refresh(later, &subscribe("Expires: 60\r\n"), LIFE), Some(60));
    assert_eq!(run.referee.poll_timeout(), Some(later + Duration::from_secs(60)));
    assert_eq!(run.referee.refresh(later, &subscribe(""), LIFE), Some(180));
    assert_eq!(run.referee.refresh(later, &subscribe("Expires: 9999\r\n"), LIFE), Some(180));
    run.referee.handle_timeout(later + LIFE);
    assert_eq!(run.referee.refresh(later, &subscribe(""), LIFE), None);
    let notices = run.notices();
    assert!(notices.last().is_some_and(Notice::is_last));

    let mut run = Run::new("");
    assert_eq!(run.referee.refresh(run.now, &subscribe("Expires: 0\r\n"), LIFE), Some(0));
    assert!(!run.referee.is_active());
}

#[test]
fn a_notification_that_is_not_wanted_ends_the_subscription() {
    for (status, is_active) in [(200, true), (500, true), (481, false), (408, false), (489, false)]
    {
        let mut run = Run::new("");
        run.referee.handle_response(status);
        assert_eq!(run.referee.is_active(), is_active, "{status}");
    }
}

#[test]
fn only_a_notification_of_this_refer_is_taken() {
    let mut run = Run::new("");
    let text = |event: &str, state: &str, body: &str| {
        let text = format!(
            "NOTIFY sip:a SIP/2.0\r\nEvent: {event}\r\nSubscription-State: {state}\r\n\r\n{body}"
        );
        Message::parse(text.into_bytes().into()).expect("a message")
    };
    let fragment = "SIP/2.0 100 Trying";
    for (event, state, body, error) in [
        ("refer;id=8", "active", fragment, NotifyError::Unknown),
        ("presence", "active", fragment, NotifyError::Unknown),
        ("refer", "", fragment, NotifyError::Malformed),
        ("refer", "active", "SIP/2.0 99 Low", NotifyError::Malformed),
        ("refer", "active", "SIP/2.0 1000 High", NotifyError::Malformed),
        ("refer", "active", "INVITE sip:a SIP/2.0", NotifyError::Malformed),
        ("refer", "active", "SIP/2", NotifyError::Malformed),
    ] {
        let refused = run.referrer.handle_notify(run.now, &text(event, state, body));
        assert_eq!(refused, Err(error), "{event} {state} {body}");
    }
    assert_eq!(run.referrer.handle_notify(run.now, &refer("")), Err(NotifyError::Malformed));
    assert_eq!(run.learn(), []);
    run.referrer
        .handle_notify(run.now, &text("refer", "active", "SIP/2.0 100"))
        .expect("no phrase");
    run.referrer.handle_notify(run.now, &text("refer;id=7", "terminated", "")).expect("no body");
    assert_eq!(run.learn(), [progress(100, ""), ReferrerOutput::Ended { status: None }]);
    assert_eq!((NotifyError::Unknown.status(), NotifyError::Malformed.status()), (481, 400));
}

/// Both sides of one REFER.
struct Run {
    now: Instant,
    refer: Message,
    referee: Referee,
    referrer: Referrer,
}

impl Run {
    fn new(more: &str) -> Self {
        let (now, refer) = (an_instant(), refer(more));
        let referee = Referee::new(now, &refer, LIFE).expect("a good REFER");
        let referrer = Referrer::new(now, &refer, PATIENCE);
        Self { now, refer, referee, referrer }
    }

    fn answer(&self) -> Message {
        self.referee.answer(&self.refer, b"t").finish()
    }

    fn notices(&mut self) -> Vec<Notice> {
        let next = || self.referee.poll_output().map(|RefereeOutput::Notify(notice)| notice);
        std::iter::from_fn(next).collect()
    }

    /// Carries all notices over.
    fn tell(&mut self) -> Vec<ReferrerOutput> {
        for notice in self.notices() {
            self.referrer.handle_notify(self.now, &notify(&notice)).expect("it is expected");
        }
        self.learn()
    }

    fn learn(&mut self) -> Vec<ReferrerOutput> {
        std::iter::from_fn(|| self.referrer.poll_output()).collect()
    }
}

fn refer(more: &str) -> Message {
    let text = format!(
        "REFER sip:bob@example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
         From: <sip:ann@example.com>;tag=a\r\n\
         To: <sip:bob@example.com>;tag=b\r\n\
         Call-ID: 1\r\n\
         CSeq: 7 REFER\r\n\
         Refer-To: <sip:carol@example.com>\r\n{more}\r\n"
    );
    Message::parse(text.into_bytes().into()).expect("a REFER")
}

fn notify(notice: &Notice) -> Message {
    notice.write(Writer::request(Method::Notify, b"sip:ann@192.0.2.1")).finish()
}

fn progress(status: u16, reason: &str) -> ReferrerOutput {
    ReferrerOutput::Progress(Progress { status, reason: reason.as_bytes().to_vec() })
}

#[expect(clippy::disallowed_methods, reason = "any instant will do to count from")]
fn an_instant() -> Instant {
    Instant::now()
}
