//! Owner of a TCP connection: which user of this machine is at its other end.

use std::net::SocketAddr;

/// The user at the other end of a connection from `peer` to `local`, both on this machine. None where the system does not
/// say it, or the other end is on another machine or in another network namespace.
#[cfg(target_os = "linux")]
pub fn user_of(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|path| {
        let table = std::fs::read_to_string(path).ok()?;
        linux::user_in(&table, peer, local)
    })
}

/// Only Linux has a table of connections with their users that everybody can read.
#[cfg(not(target_os = "linux"))]
pub fn user_of(_peer: SocketAddr, _local: SocketAddr) -> Option<u32> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::net::{IpAddr, SocketAddr};

    /// The state of a connection that is open at both ends.
    const ESTABLISHED: &str = "01";

    /// Finds the socket of the other end. Its own address is `peer`, and its remote address is `local`.
    pub(super) fn user_in(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
        let (own, remote) = (forms(peer), forms(local));
        table.lines().skip(1).find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let ends = (fields.next()?, fields.next()?, fields.next()?);
            let is_it = own.iter().any(|form| form == ends.0) && remote.iter().any(|form| form == ends.1);
            if is_it && ends.2 == ESTABLISHED { fields.nth(3)?.parse().ok() } else { None }
        })
    }

    /// An address as the table has it: words of 32 bits as the machine reads them, then the port. A socket for IPv6 has an
    /// IPv4 address in its longer form.
    fn forms(address: SocketAddr) -> Vec<String> {
        let port = address.port();
        let long = |octets: [u8; 16]| {
            let words = octets.chunks_exact(4).map(|word| {
                let word = word.try_into().expect("a chunk has four bytes");
                format!("{:08X}", u32::from_ne_bytes(word))
            });
            format!("{}:{port:04X}", words.collect::<String>())
        };
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => {
                let short = format!("{:08X}:{port:04X}", u32::from_ne_bytes(ip.octets()));
                vec![short, long(ip.to_ipv6_mapped().octets())]
            }
            IpAddr::V6(ip) => vec![long(ip.octets())],
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn our_own_connections_are_ours() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without IPv6 has no such address.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let local = listener.local_addr().unwrap();
            let client = TcpStream::connect(local).unwrap();
            let (_server, peer) = listener.accept().unwrap();
            assert_eq!(user_of(peer, local), Some(rustix::process::geteuid().as_raw()), "{address}");
            drop(client);
        }
        let unknown = "127.0.0.1:1".parse().unwrap();
        assert_eq!(user_of(unknown, unknown), None);
    }

    #[test]
    fn the_other_end_is_found_by_both_addresses() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:C350 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1001        0 1 1\n   \
            1: 0100007F:C350 0100007F:1C68 06 00000000:00000000 00:00000000 00000000     0        0 0 1\n   \
            2: 0100007F:C350 0100007F:1C68 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n";
        let [peer, local] = ["127.0.0.1:50000", "127.0.0.1:7272"].map(|text| text.parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!(linux::user_in(table, peer, local), Some(1000));
            assert_eq!(linux::user_in(table, local, peer), None);
        }
    }
}
