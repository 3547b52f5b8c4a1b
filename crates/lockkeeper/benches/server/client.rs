//! A connection that stays open and asks one thing after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub struct Client {
    address: SocketAddr,
    reader: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { address, reader: BufReader::with_capacity(64 * 1024, stream), body: Vec::new() }
    }

    /// Asks, reads all of the answer and gives its length.
    pub fn get(&mut self, path: &str) -> usize {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        self.reader.get_mut().write_all(head.as_bytes()).unwrap();
        let (mut length, mut line) = (0, String::new());
        self.reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{path}: {line}");
        loop {
            line.clear();
            self.reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = text.trim_end().parse().unwrap();
            }
        }
        self.body.resize(length, 0);
        self.reader.read_exact(&mut self.body).unwrap();
        length
    }
}
