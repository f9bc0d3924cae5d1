//! What must be right for a message to be acceptable, found while it is read.

use crate::Method;
use crate::defect::{Defect, DefectKind, Verdict};
use crate::fields::{self, CSeq};
use crate::index::{HeaderRef, Span};
use crate::lex::{self, Elements};
use crate::name_addr::NameAddr;
use crate::names::{GARBLED, NAMES, Name};
use crate::params::Malformed;
use crate::parse::{BodyLen, Head, Start};
use crate::uri::Uri;
use crate::via::Via;

/// Of one defect in one header no more than this are kept. Every different one
/// is, so that no number of harmless faults hides the one that decides.
const ALIKE_MAX: u8 = 4;
/// Room for this many kinds of defects.
const KINDS: usize = 16;
const _: () = assert!((DefectKind::Odd as usize) < KINDS, "the last kind has room");

const VIA: u8 = Name::VIA.id;
const FROM: u8 = Name::FROM.id;
const TO: u8 = Name::TO.id;
const CALL_ID: u8 = Name::CALL_ID.id;
const CSEQ: u8 = Name::CSEQ.id;
const CONTACT: u8 = Name::CONTACT.id;
const ROUTE: u8 = Name::ROUTE.id;
const RECORD_ROUTE: u8 = Name::RECORD_ROUTE.id;
const PATH: u8 = Name::PATH.id;
const MAX_FORWARDS: u8 = Name::MAX_FORWARDS.id;
const CONTENT_LENGTH: u8 = Name::CONTENT_LENGTH.id;

/// Headers whose presence matters; those behind Via may stand once (RFC 3261
/// §7.3.1: they are no lists, each where it is defined).
const WATCHED: [u8; 38] = [
    VIA,
    FROM,
    TO,
    CALL_ID,
    CSEQ,
    MAX_FORWARDS,
    CONTENT_LENGTH,
    Name::CONTENT_DISPOSITION.id,
    Name::CONTENT_TYPE.id,
    Name::DATE.id,
    Name::EVENT.id,
    Name::EXPIRES.id,
    Name::FLOW_TIMER.id,
    Name::INFO_PACKAGE.id,
    Name::JOIN.id,
    Name::MIME_VERSION.id,
    Name::MIN_EXPIRES.id,
    Name::MIN_SE.id,
    Name::ORGANIZATION.id,
    Name::P_CHARGING_VECTOR.id,
    Name::PRIORITY.id,
    Name::RACK.id,
    Name::REFER_SUB.id,
    Name::REFER_TO.id,
    Name::REFERRED_BY.id,
    Name::REPLACES.id,
    Name::REPLY_TO.id,
    Name::RETRY_AFTER.id,
    Name::RSEQ.id,
    Name::SERVER.id,
    Name::SESSION_EXPIRES.id,
    Name::SIP_ETAG.id,
    Name::SIP_IF_MATCH.id,
    Name::SUBJECT.id,
    Name::SUBSCRIPTION_STATE.id,
    Name::TARGET_DIALOG.id,
    Name::TIMESTAMP.id,
    Name::USER_AGENT.id,
];

/// By id of a header: the place of its bit in [`Checks::seen`], or 0.
static PLACE: [u8; 256] = places();

#[expect(clippy::cast_possible_truncation, reason = "fewer than 64 headers are watched")]
const fn places() -> [u8; 256] {
    let mut places = [0; 256];
    let mut i = 0;
    while i < WATCHED.len() {
        places[WATCHED[i] as usize] = i as u8 + 1;
        i += 1;
    }
    places
}

/// The bit of a header that is watched, else none.
fn bit(id: u8) -> u64 {
    (1 << PLACE[usize::from(id)]) & !1
}

/// The values that every user of a message asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) branch: Span,
    pub(crate) sent_by_host: Span,
    pub(crate) sent_by_port: Option<u16>,
    pub(crate) from_tag: Span,
    pub(crate) to_tag: Span,
    pub(crate) call_id: Span,
    pub(crate) cseq_method: Span,
    pub(crate) cseq_number: u32,
    pub(crate) body_len: BodyLen,
    has_via: bool,
}

/// Findings while a head is read.
#[derive(Debug)]
pub(crate) struct Checks<'h> {
    fields: &'h mut Fields,
    pub(crate) defects: Vec<Defect>,
    /// How many defects are kept, by header and kind.
    alike: Vec<u8>,
    is_odd: bool,
    has_contact: bool,
    has_star: bool,
    seen: u64,
}

impl<'h> Checks<'h> {
    /// Begins with nothing seen; values go to `fields` as they are found.
    pub(crate) const fn new(fields: &'h mut Fields) -> Self {
        Self {
            fields,
            defects: Vec::new(),
            alike: Vec::new(),
            is_odd: false,
            has_contact: false,
            has_star: false,
            seen: 0,
        }
    }

    pub(crate) fn defect(
        &mut self,
        header: Option<Name<'static>>,
        kind: DefectKind,
        offset: usize,
    ) {
        // Only a message that has defects pays for counting them.
        self.alike.resize(NAMES * KINDS, 0);
        let header_id = usize::from(header.map_or(0, |name| name.id));
        let alike = &mut self.alike[header_id * KINDS + kind as usize];
        if *alike < ALIKE_MAX {
            *alike += 1;
            self.defects.push(Defect { header, kind, offset });
        }
    }

    /// Looks at one header line.
    pub(crate) fn header(&mut self, bytes: &[u8], header: HeaderRef) {
        let value = header.value.get(bytes);
        let bit = bit(header.id);
        if bit & self.seen != 0 && header.id != VIA {
            self.report(header, DefectKind::Duplicate);
            if header.id == CONTENT_LENGTH {
                self.fields.body_len = BodyLen::Unknown;
            }
            return;
        }
        let found = match header.id {
            GARBLED => {
                self.defect(None, DefectKind::HeaderLine, header.at as usize);
                return;
            }
            VIA => self.via(bytes, value),
            FROM => self.party(bytes, value).map(|tag| self.fields.from_tag = tag),
            TO => self.party(bytes, value).map(|tag| self.fields.to_tag = tag),
            CALL_ID => self.call_id(bytes, value),
            CSEQ => self.cseq(bytes, value),
            CONTACT => self.contact(value),
            ROUTE | RECORD_ROUTE | PATH => self.addresses(value),
            MAX_FORWARDS => fields::hops(value).map(|_| ()).ok_or(Malformed),
            CONTENT_LENGTH => match lex::number(value) {
                Some(len) => {
                    self.fields.body_len = BodyLen::Is(len);
                    Ok(())
                }
                None => {
                    self.fields.body_len = BodyLen::Unknown;
                    Err(Malformed)
                }
            },
            _ => Ok(()),
        };
        self.seen |= bit;
        if found.is_err() {
            self.report(header, DefectKind::Malformed);
        }
        if std::mem::take(&mut self.is_odd) {
            self.report(header, DefectKind::Odd);
        }
    }

    fn report(&mut self, header: HeaderRef, kind: DefectKind) {
        self.defect(Name::from_id(header.id), kind, header.value.at as usize);
    }

    fn via(&mut self, bytes: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let is_first = bit(VIA) & self.seen == 0;
        let mut is_top = is_first;
        let mut rest = value;
        // Parameters end where the next element begins, so that nobody has to
        // look for commas before.
        loop {
            let via = Via::read(rest)?;
            if is_top {
                self.fields.has_via = true;
                self.fields.sent_by_host = Span::of(bytes, via.host().as_bytes());
                self.fields.sent_by_port = via.port();
            }
            let mut params = via.params();
            let mut branch = None;
            let next = loop {
                if params.as_bytes().first() != Some(&b';')
                    && let [b',', next @ ..] = lex::trim_start(params.as_bytes())
                {
                    break Some(lex::trim_start(next));
                }
                let Some(param) = params.take()? else { break None };
                if param.name.eq_ignore_ascii_case(b"branch")
                    && branch.replace(param.value.ok_or(Malformed)?).is_some()
                {
                    return Err(Malformed);
                }
            };
            if let Some(branch) = branch.filter(|_| is_top) {
                self.fields.branch = Span::of(bytes, branch);
            }
            is_top = false;
            match next {
                Some(next) => rest = next,
                None => return Ok(()),
            }
        }
    }

    /// From or To: returns where the tag stands.
    fn party(&mut self, bytes: &[u8], value: &[u8]) -> Result<Span, Malformed> {
        let address = self.address(value)?;
        let mut params = address.params();
        let mut tag = None;
        while let Some(param) = params.take()? {
            if param.name.eq_ignore_ascii_case(b"tag")
                && tag.replace(param.value.ok_or(Malformed)?).is_some()
            {
                return Err(Malformed);
            }
        }
        Ok(tag.map_or_else(Span::default, |tag| Span::of(bytes, tag)))
    }

    fn address<'a>(&mut self, value: &'a [u8]) -> Result<NameAddr<'a>, Malformed> {
        let address = NameAddr::parse(value)?;
        Uri::parse(address.uri())?;
        self.is_odd |= address.is_odd();
        Ok(address)
    }

    fn addresses(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let mut elements = Elements::new(value);
        while let Some(element) = elements.next_any() {
            let address = self.address(element)?;
            let mut params = address.params();
            while params.take()?.is_some() {}
        }
        Ok(())
    }

    /// RFC 3261 §20.10: `*` stands for all, so nothing stands beside it.
    fn contact(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let is_star = value == b"*";
        let is_alone = !(self.has_star || is_star && self.has_contact);
        self.has_star |= is_star;
        self.has_contact = true;
        match (is_alone, is_star) {
            (false, _) => Err(Malformed),
            (true, true) => Ok(()),
            (true, false) => self.addresses(value),
        }
    }

    fn call_id(&mut self, bytes: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.fields.call_id = Span::of(bytes, value);
        if value.is_empty() || !lex::is_visible(value) { Err(Malformed) } else { Ok(()) }
    }

    fn cseq(&mut self, bytes: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let cseq = CSeq::parse(value)?;
        self.fields.cseq_number = cseq.number;
        let method_len = cseq.method.as_bytes().len();
        self.fields.cseq_method = Span::of(bytes, &value[value.len() - method_len..]);
        Ok(())
    }

    /// Looks at what only the whole head shows.
    pub(crate) fn finish(&mut self, bytes: &[u8], start: Start, headers_end: usize) {
        for name in [Name::VIA, Name::FROM, Name::TO, Name::CALL_ID, Name::CSEQ] {
            if bit(name.id) & self.seen == 0 {
                self.defect(Some(name), DefectKind::Missing, headers_end);
            }
        }
        let Start::Request { method, uri } = start else { return };
        // A URI in a request line carries no headers (RFC 3261 §19.1.1).
        if !Uri::parse(uri.get(bytes)).is_ok_and(|uri| uri.headers().is_none()) {
            self.defect(None, DefectKind::RequestUri, uri.at as usize);
        }
        if let Some(cseq_method) = self.fields.cseq_method.get_some(bytes)
            && cseq_method != method.get(bytes)
        {
            let kind = match Method::new(method.get(bytes)) {
                Method::Other(_) => DefectKind::UnknownMethodMismatch,
                Method::Ack
                | Method::Bye
                | Method::Cancel
                | Method::Info
                | Method::Invite
                | Method::Message
                | Method::Notify
                | Method::Options
                | Method::Prack
                | Method::Publish
                | Method::Refer
                | Method::Register
                | Method::Subscribe
                | Method::Update => DefectKind::MethodMismatch,
            };
            self.defect(Some(Name::CSEQ), kind, self.fields.cseq_method.at as usize);
        }
    }
}

/// Decides from all defects what to do with a message.
pub(crate) fn verdict(head: &Head, defects: &[Defect], method: &[u8]) -> Verdict {
    match head.start {
        Start::Response { .. } if defects.iter().any(spoils_response) => Verdict::Discard,
        Start::Response { .. } => Verdict::Ok,
        Start::Request { .. } => {
            let statuses = defects.iter().filter_map(|defect| defect.kind.status());
            match statuses.max_by_key(|status| rank(*status)) {
                None => Verdict::Ok,
                Some(_) if method == b"ACK" || !head.fields.has_via => Verdict::Discard,
                Some(status) => Verdict::Answer(status),
            }
        }
    }
}

/// Of several statuses, the one that helps the sender most.
const fn rank(status: u16) -> u8 {
    match status {
        505 => 3,
        513 => 2,
        400 => 1,
        _ => 0,
    }
}

/// Whatever a response needs to reach its transaction must be right; the rest
/// of it is for the reader to judge (RFC 3261 §8.1.3.1 wants it ignored).
fn spoils_response(defect: &Defect) -> bool {
    match defect.kind {
        DefectKind::Odd | DefectKind::HeaderLine | DefectKind::RequestUri => false,
        DefectKind::Malformed | DefectKind::Duplicate => defect.header.is_some_and(|name| {
            matches!(name.id, VIA | FROM | TO | CALL_ID | CSEQ | CONTENT_LENGTH)
        }),
        DefectKind::StartLine
        | DefectKind::Version
        | DefectKind::StatusCode
        | DefectKind::BareLineBreak
        | DefectKind::Unterminated
        | DefectKind::Missing
        | DefectKind::MethodMismatch
        | DefectKind::UnknownMethodMismatch
        | DefectKind::BodyTooShort
        | DefectKind::BodyTooLong => true,
    }
}
