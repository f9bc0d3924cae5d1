//! One phone: a user agent of RFC 3261 with one call at a time.

mod call;
mod client;
mod dialog_request;
mod media;
mod register;
mod server;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use driver::SocketId;

use crate::ear::Ear;
use crate::fleet::{Config, Desk, Speech};
use crate::journal::{Ended, Event, Fault, PhoneId};
use crate::manners::{Manners, SpeaksFrom};
use crate::offer::{Codec, Direction};
use crate::phone::call::{Call, Stage};
use crate::phone::client::{Client, Purpose};
use crate::phone::register::Registration;
use crate::phone::server::Server;
use crate::sip::{Draft, Sip, address_of};
use crate::voice::{Mouth, PACKET_LEN};

/// Every branch of a phone begins so, its number in hexadecimal and a dot follow.
pub(crate) const BRANCH_PREFIX: &str = "z9hG4bKp";

/// What a phone can be told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Registers, and registers again at half of the time given.
    Register,
    /// Takes its registration back.
    Unregister,
    /// Calls a URI.
    Call {
        /// The SIP URI; with [`Config::server`] its host may be a name.
        to: String,
    },
    /// Answers the call that rings.
    Answer,
    /// Refuses the call that rings.
    Refuse {
        /// The final status, 300 to 699.
        status: u16,
    },
    /// Gives up its own call before it is answered.
    Cancel,
    /// Ends the call, whatever its stage.
    Hangup,
    /// Loses the call without a word, as a phone that was switched off and on:
    /// whoever asks about it later is answered as its manners say.
    Forget,
    /// Holds the other side: an INVITE with `a=sendonly`.
    Hold,
    /// Ends the hold.
    Resume,
    /// Sends an INVITE inside the call with an unchanged description.
    Reinvite,
    /// Sends an INVITE inside the call that offers other codecs.
    Codecs(Vec<Codec>),
    /// Sends an INVITE inside the call that moves its RTP to its other port,
    /// or back.
    Move,
    /// Asks its server or, in a call, the other side for its capabilities.
    Options,
    /// Behaves in another way from now on.
    Behave(Box<Manners>),
}

/// What a phone is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No call.
    Idle,
    /// Its own call is not answered.
    Calling,
    /// It has not answered a call.
    Ringing,
    /// The call stands.
    Talking {
        /// It holds the other side.
        holds: bool,
        /// The other side holds it.
        held: bool,
    },
    /// Its BYE or CANCEL is on its way.
    Ending,
}

/// One phone.
#[derive(Debug)]
pub(crate) struct Phone {
    id: PhoneId,
    user: String,
    manners: Manners,
    registration: Option<Registration>,
    call: Option<Call>,
    /// Calls that have ended, newest last: Call-ID, own tag, and how.
    past: VecDeque<(String, String, Ended)>,
    clients: Vec<Client>,
    servers: Vec<Server>,
    reactions: BTreeMap<(Instant, u64), Reaction>,
    /// Keeps reactions of one instant in order.
    reactions_count: u64,
    pub(crate) ear: Ear,
    mouth: Option<Mouth>,
    /// Its other RTP port is open.
    other_port: bool,
}

/// What a phone has decided to do later.
#[derive(Clone, Debug)]
enum Reaction {
    Obey(Command),
    /// Sends this answer to the INVITE with this key, if it is still open.
    Answer {
        key: String,
        status: u16,
        retry_after: Option<u32>,
    },
    /// Tries its own INVITE again after a 491.
    Retry,
    Refresh,
}

const PAST_MAX: usize = 8;

impl Phone {
    pub(crate) fn new(id: PhoneId, config: &Config) -> Self {
        Self {
            id,
            user: config.user(id),
            manners: config.manners.clone(),
            registration: None,
            call: None,
            past: VecDeque::new(),
            clients: Vec::new(),
            servers: Vec::new(),
            reactions: BTreeMap::new(),
            reactions_count: 0,
            ear: Ear::default(),
            mouth: None,
            other_port: false,
        }
    }

    pub(crate) fn plan(&mut self, at: Instant, command: Command) {
        self.react(at, Reaction::Obey(command));
    }

    /// Takes in a message that is for this phone.
    pub(crate) fn receive(
        &mut self,
        desk: &mut Desk<'_>,
        sip: &Sip,
        socket: SocketId,
        from: SocketAddr,
    ) {
        match sip.status() {
            Some(status) => self.answered(desk, sip, status),
            None => self.requested(desk, sip, socket, from),
        }
        self.settle_media(desk);
    }

    /// Does whatever is due.
    pub(crate) fn do_due(&mut self, desk: &mut Desk<'_>) {
        while let Some(entry) = self.reactions.first_entry()
            && entry.key().0 <= desk.now
        {
            let reaction = entry.remove();
            self.act(desk, reaction);
        }
        self.clients_due(desk);
        self.servers_due(desk);
        self.settle_media(desk);
    }

    /// Writes the next packet if the phone speaks.
    pub(crate) fn speak(
        &mut self,
        since_start: Duration,
        speech: Speech,
        packet: &mut [u8; PACKET_LEN],
    ) -> Option<SocketAddr> {
        let to = self.speaks_to()?;
        let payload_type = self.call.as_ref()?.media.payload_type()?;
        let mouth = self.mouth.as_mut()?;
        mouth.speak(since_start, payload_type, packet);
        if speech == Speech::Tone {
            mouth.sing(payload_type, packet);
        }
        Some(to)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let reaction = self.reactions.first_key_value().map(|(&(at, _), _)| at);
        let client = self.clients.iter().filter_map(Client::due_at).min();
        let server = self.servers.iter().filter_map(Server::due_at).min();
        [reaction, client, server].into_iter().flatten().min()
    }

    pub(crate) fn state(&self) -> State {
        let Some(call) = &self.call else { return State::Idle };
        match call.stage {
            Stage::Calling { cancelled: false, .. } => State::Calling,
            Stage::Calling { cancelled: true, .. } | Stage::Ending => State::Ending,
            Stage::Ringing { .. } => State::Ringing,
            Stage::Standing => State::Talking {
                holds: !call.media.own_direction().receives(),
                held: call.media.is_held(),
            },
        }
    }

    pub(crate) fn speaks_to(&self) -> Option<SocketAddr> {
        self.mouth.as_ref()?;
        self.media_at()
    }

    pub(crate) fn media_at(&self) -> Option<SocketAddr> {
        self.call.as_ref()?.media.speaks_to()
    }

    pub(crate) fn speaks_from_other(&self) -> bool {
        self.call.as_ref().is_some_and(|call| {
            call.media.on_other_port
                || (call.reinvited && self.manners.speaks_from == SpeaksFrom::OtherPort)
        })
    }

    fn react(&mut self, at: Instant, reaction: Reaction) {
        self.reactions_count += 1;
        self.reactions.insert((at, self.reactions_count), reaction);
    }

    fn act(&mut self, desk: &mut Desk<'_>, reaction: Reaction) {
        match reaction {
            Reaction::Obey(command) => self.obey(desk, command),
            Reaction::Answer { key, status, retry_after } => {
                self.answer_invite(desk, &key, status, retry_after);
            }
            Reaction::Retry => self.retry_reinvite(desk),
            Reaction::Refresh => self.register(desk, desk.config.expires),
        }
    }

    fn obey(&mut self, desk: &mut Desk<'_>, command: Command) {
        match command {
            Command::Register => self.register(desk, desk.config.expires),
            Command::Unregister => self.register(desk, 0),
            Command::Call { to } => self.dial(desk, &to),
            Command::Answer => self.answer_ringing(desk, 200),
            Command::Refuse { status } => self.answer_ringing(desk, status),
            Command::Cancel => self.cancel(desk),
            Command::Hangup => self.hang_up(desk),
            Command::Forget => {
                self.refuse_open_invites(desk);
                self.clients.retain(|client| client.purpose == Purpose::Register);
                self.end_call(desk, Ended::Here);
            }
            Command::Hold => self.reinvite_as(desk, |call| call.media.wanted = Direction::SendOnly),
            Command::Resume => {
                self.reinvite_as(desk, |call| call.media.wanted = Direction::SendRecv);
            }
            Command::Reinvite => self.reinvite_as(desk, |_| ()),
            Command::Codecs(codecs) => self.reinvite_as(desk, |call| call.media.codecs = codecs),
            Command::Move => {
                self.open_other_port(desk);
                self.reinvite_as(desk, |call| call.media.wants_other_port ^= true);
            }
            Command::Options => self.ask_options(desk),
            Command::Behave(manners) => {
                if manners.speaks_from == SpeaksFrom::OtherPort {
                    self.open_other_port(desk);
                }
                self.manners = *manners;
            }
        }
    }

    /// Begins a call.
    fn dial(&mut self, desk: &mut Desk<'_>, to: &str) {
        let Some(peer) = desk.config.server_of(desk.phone).or_else(|| address_of(to)) else {
            return;
        };
        if self.call.is_some() {
            return;
        }
        let tag = self.new_tag(desk);
        let mut call = Call::outgoing(desk, &self.user, tag, to, peer);
        let offer = call.media.offer();
        let branch = self.new_branch(desk);
        let invite =
            call.request(desk, "INVITE", &branch).header("Allow", ALLOW).finish(Some(&offer));
        call.stage = Stage::Calling { branch: branch.clone(), cancelled: false };
        let (cseq, peer) = (call.cseq, call.peer());
        self.call = Some(call);
        self.send_request(desk, Client::new("INVITE", branch, cseq, Purpose::Call, invite, peer));
    }

    /// Gives up the own call; answered calls are hung up.
    fn cancel(&mut self, desk: &mut Desk<'_>) {
        let Some(call) = &mut self.call else { return };
        if let Stage::Calling { branch, cancelled } = &mut call.stage {
            *cancelled = true;
            let branch = branch.clone();
            self.cancel_client(desk, &branch);
        }
    }

    fn hang_up(&mut self, desk: &mut Desk<'_>) {
        let Some(call) = &mut self.call else { return };
        match call.stage {
            Stage::Calling { .. } => self.cancel(desk),
            Stage::Ringing { .. } => self.answer_ringing(desk, 486),
            // RFC 3261 §15: the callee waits for the ACK.
            Stage::Standing if !call.acknowledged => call.hang_up_at_ack = true,
            Stage::Standing => self.bye(desk),
            Stage::Ending => {}
        }
    }

    /// Sends a BYE; the call is over here.
    fn bye(&mut self, desk: &mut Desk<'_>) {
        self.refuse_open_invites(desk);
        let branch = self.new_branch(desk);
        let Some(call) = &mut self.call else { return };
        let bye = call.request(desk, "BYE", &branch).finish(None);
        call.stage = Stage::Ending;
        let (cseq, peer) = (call.cseq, call.peer());
        self.send_request(desk, Client::new("BYE", branch, cseq, Purpose::Bye, bye, peer));
    }

    fn ask_options(&mut self, desk: &mut Desk<'_>) {
        let branch = self.new_branch(desk);
        let (draft, cseq, peer) = if let Some(call) = &mut self.call {
            (call.request(desk, "OPTIONS", &branch), call.cseq, call.peer())
        } else {
            let Some(server) = desk.config.server_of(desk.phone) else { return };
            let tag = self.new_tag(desk);
            let aor = desk.config.aor(self.id);
            let call_id = format!("{:016x}@{}", desk.random.next(), desk.config.ip);
            let draft = Draft::request("OPTIONS", &format!("sip:{server}"))
                .header("Via", &via(desk, &branch))
                .header("Max-Forwards", "70")
                .header("From", &format!("<{aor}>;tag={tag}"))
                .header("To", &format!("<sip:{server}>"))
                .header("Call-ID", &call_id)
                .header("CSeq", "1 OPTIONS");
            (draft, 1, server)
        };
        let options = draft.finish(None);
        self.send_request(
            desk,
            Client::new("OPTIONS", branch, cseq, Purpose::Options, options, peer),
        );
    }

    /// Ends the call here and now.
    fn end_call(&mut self, desk: &mut Desk<'_>, ended: Ended) {
        let Some(call) = self.call.take() else { return };
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back((call.id, call.local_tag, ended));
        desk.event(Event::Ended(ended));
    }

    /// Opens and closes ear and mouth as the call wants it now.
    fn settle_media(&mut self, desk: &mut Desk<'_>) {
        let has_voice = desk.config.has_voice(self.id);
        let call = self.call.as_ref().filter(|call| has_voice && call.has_media());
        if call.is_some_and(|call| call.media.speaks_to().is_some()) {
            if self.mouth.is_none() {
                let ssrc = u32::try_from(desk.random.next() >> 32).unwrap_or(0);
                self.mouth = Some(Mouth::new(self.id.0, ssrc));
            }
        } else if self.call.is_none() {
            self.mouth = None;
        }
        if call.is_some_and(|call| call.media.hears() && call.stage == Stage::Standing) {
            self.ear.open(desk.now);
        } else {
            self.ear.close(desk.now);
        }
    }

    fn open_other_port(&mut self, desk: &mut Desk<'_>) {
        if !self.other_port {
            self.other_port = true;
            let mut local = desk.config.rtp_addr(self.id);
            local.set_port(local.port() + 2);
            desk.bind(desk.config.rtp_socket(self.id, true), local);
        }
    }

    fn new_branch(&self, desk: &mut Desk<'_>) -> String {
        format!("{BRANCH_PREFIX}{:x}.{:016x}", self.id.0, desk.random.next())
    }

    fn new_tag(&self, desk: &mut Desk<'_>) -> String {
        format!("{:x}.{:016x}", self.id.0, desk.random.next())
    }

    fn send_request(&mut self, desk: &mut Desk<'_>, mut client: Client) {
        client.begin(desk);
        self.clients.push(client);
    }

    fn note_unknown(&self, desk: &mut Desk<'_>, sip: &Sip) {
        let (id, tag) = (sip.call_id(), sip.tag("to").unwrap_or_default());
        let past = self.past.iter().find(|(call, own, _)| call == id && own == tag);
        match past {
            // What crossed the phone's own BYE is nobody's fault.
            Some((_, _, Ended::Here | Ended::Unacknowledged | Ended::Refused | Ended::Unknown)) => {
            }
            Some((_, _, Ended::There)) => {
                desk.fault(Fault::AfterEnd { method: sip.method().to_owned() });
            }
            None => desk.fault(Fault::UnknownCall),
        }
    }
}

const ALLOW: &str = "INVITE, ACK, CANCEL, BYE, OPTIONS, INFO";

fn via(desk: &Desk<'_>, branch: &str) -> String {
    let transport = desk.config.transport(desk.phone);
    format!("SIP/2.0/{transport} {};branch={branch};rport", desk.config.sip_addr(desk.phone))
}

fn contact(desk: &Desk<'_>) -> String {
    let (user, address) = (desk.config.user(desk.phone), desk.config.sip_addr(desk.phone));
    let transport = match desk.config.transport(desk.phone) {
        "UDP" => String::new(),
        other => format!(";transport={}", other.to_ascii_lowercase()),
    };
    format!("<sip:{user}@{address}{transport}>")
}
