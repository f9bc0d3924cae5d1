//! A client of rtpengine's ng protocol: a cookie and one bencoded dictionary a datagram.

use std::collections::BTreeMap;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// A socket to one rtpengine.
#[derive(Debug)]
pub(crate) struct Client {
    socket: UdpSocket,
    cookie: u32,
}

/// A bencoded value; integers are never asked for and read over.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(Vec<u8>),
    Integer,
    List(Vec<Self>),
    Dictionary(BTreeMap<Vec<u8>, Self>),
}

impl Client {
    /// Waits until the rtpengine at `address` answers.
    pub(crate) fn connect(address: SocketAddrV4) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((*address.ip(), 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut client = Self { socket, cookie: 0 };
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if client.ask(&[("command", "ping")]).is_ok() {
                client.socket.set_read_timeout(Some(Duration::from_secs(5)))?;
                return Ok(client);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("rtpengine at {address} does not answer");
    }

    /// Sets up a relayed call between two addresses; returns the relay's ports
    /// towards the caller and towards the callee.
    pub(crate) fn call(
        &mut self,
        id: usize,
        caller: SocketAddrV4,
        callee: SocketAddrV4,
    ) -> anyhow::Result<(u16, u16)> {
        let call = format!("bench-{id}");
        let offer = sdp(caller);
        let reply = self.ask(&[
            ("command", "offer"),
            ("call-id", &call),
            ("from-tag", "caller"),
            ("ICE", "remove"),
            ("sdp", &offer),
        ])?;
        let callee_port = port(&reply)?;
        let answer = sdp(callee);
        let reply = self.ask(&[
            ("command", "answer"),
            ("call-id", &call),
            ("from-tag", "caller"),
            ("to-tag", "callee"),
            ("ICE", "remove"),
            ("sdp", &answer),
        ])?;
        Ok((port(&reply)?, callee_port))
    }

    fn ask(&mut self, pairs: &[(&str, &str)]) -> anyhow::Result<BTreeMap<Vec<u8>, Value>> {
        self.cookie += 1;
        let cookie = format!("{} ", self.cookie);
        let mut message = cookie.clone().into_bytes();
        message.push(b'd');
        let sorted: BTreeMap<&str, &str> = pairs.iter().copied().collect();
        for (key, value) in sorted {
            message.extend(format!("{}:{key}{}:{value}", key.len(), value.len()).into_bytes());
        }
        message.push(b'e');
        self.socket.send(&message)?;
        let mut buffer = vec![0; 65536];
        loop {
            let len = self.socket.recv(&mut buffer)?;
            // An answer to an earlier question that came too late.
            let Some(body) = buffer[..len].strip_prefix(cookie.as_bytes()) else { continue };
            let Some((Value::Dictionary(reply), _)) = decode(body) else {
                bail!("rtpengine's reply is no dictionary");
            };
            let result = reply.get(b"result".as_slice());
            if ![Some(&Value::Text(b"ok".to_vec())), Some(&Value::Text(b"pong".to_vec()))]
                .contains(&result)
            {
                bail!("rtpengine refused: {}", String::from_utf8_lossy(body));
            }
            return Ok(reply);
        }
    }
}

fn sdp(address: SocketAddrV4) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
         m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=sendrecv\r\n"
    )
}

fn port(reply: &BTreeMap<Vec<u8>, Value>) -> anyhow::Result<u16> {
    let Some(Value::Text(sdp)) = reply.get(b"sdp".as_slice()) else { bail!("a reply without SDP") };
    let sdp = String::from_utf8_lossy(sdp);
    let line = sdp.lines().find_map(|line| line.strip_prefix("m=audio "));
    let port = line.and_then(|line| line.split(' ').next()).context("SDP without audio")?;
    port.parse().context("a port that is no number")
}

/// Decodes one value; returns it with what follows.
fn decode(bytes: &[u8]) -> Option<(Value, &[u8])> {
    match bytes.first()? {
        b'i' => {
            let end = bytes.iter().position(|byte| *byte == b'e')?;
            Some((Value::Integer, &bytes[end + 1..]))
        }
        b'l' => {
            let mut rest = &bytes[1..];
            let mut items = Vec::new();
            while rest.first()? != &b'e' {
                let (item, after) = decode(rest)?;
                items.push(item);
                rest = after;
            }
            Some((Value::List(items), &rest[1..]))
        }
        b'd' => {
            let mut rest = &bytes[1..];
            let mut items = BTreeMap::new();
            while rest.first()? != &b'e' {
                let (Value::Text(key), after) = decode(rest)? else { return None };
                let (value, after) = decode(after)?;
                items.insert(key, value);
                rest = after;
            }
            Some((Value::Dictionary(items), &rest[1..]))
        }
        _ => {
            let colon = bytes.iter().position(|byte| *byte == b':')?;
            let len: usize = std::str::from_utf8(&bytes[..colon]).ok()?.parse().ok()?;
            let text = bytes.get(colon + 1..)?.get(..len)?;
            Some((Value::Text(text.to_vec()), &bytes[colon + 1 + len..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_decoded_whole() {
        let (value, rest) = decode(b"d4:listl1:ai-3ee6:result2:oke").expect("well formed");

        assert_eq!(rest, b"");
        let Value::Dictionary(items) = value else { panic!("no dictionary") };
        assert_eq!(items.get(b"result".as_slice()), Some(&Value::Text(b"ok".to_vec())));
        let list = Value::List(vec![Value::Text(b"a".to_vec()), Value::Integer]);
        assert_eq!(items.get(b"list".as_slice()), Some(&list));
    }

    #[test]
    fn a_reply_that_ends_early_is_none() {
        for len in 0..28 {
            assert_eq!(decode(&b"d4:listl1:ai-3ee6:result2:oke"[..len]), None);
        }
    }
}
