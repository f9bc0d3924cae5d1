//! A part of the address space.

use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that share their first bits, written `10.0.0.0/8`; a single address needs no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
}

/// The text is no network. Whoever wrote it is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a network like 10.0.0.0/8")]
pub struct NetworkError;

impl Network {
    /// Returns whether `ip` lies in it. A mapped IPv4 address lies in IPv4 networks.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let differing = own.to_bits() ^ ip.to_bits();
                differing.checked_shr(32 - u32::from(self.prefix_len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let differing = own.to_bits() ^ ip.to_bits();
                differing.checked_shr(128 - u32::from(self.prefix_len)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix_len) = match text.split_once('/') {
            Some((address, prefix_len)) => (address, Some(prefix_len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = prefix_len.map_or(Ok(bits), str::parse).map_err(|_| NetworkError)?;
        if bits < prefix_len {
            return Err(NetworkError);
        }
        Ok(Self { address, prefix_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_networks_that_share_its_first_bits() {
        let lies = |network: &str, ip: &str| {
            network.parse::<Network>().unwrap().contains(ip.parse().unwrap())
        };

        assert!(lies("10.0.0.0/8", "10.255.1.2"));
        assert!(!lies("10.0.0.0/8", "11.0.0.0"));
        assert!(lies("0.0.0.0/0", "192.0.2.1"));
        assert!(!lies("0.0.0.0/0", "::1"));
        assert!(lies("127.0.0.1", "127.0.0.1"));
        assert!(!lies("127.0.0.1", "127.0.0.2"));
        assert!(lies("fd00::/8", "fd12::1"));
        assert!(lies("::/0", "2001:db8::1"));
        assert!(lies("10.0.0.0/8", "::ffff:10.1.1.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
