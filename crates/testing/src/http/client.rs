//! One request and its answer, over a connection of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::LIMIT;

/// A request to be completed and sent.
pub struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    host: Option<String>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request with neither headers nor body.
    #[must_use]
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let host = Some(address.to_string());
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { address, method, path, host, headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sends another `host` header, or none.
    #[must_use]
    pub fn host(mut self, host: Option<&str>) -> Self {
        self.host = host.map(str::to_owned);
        self
    }

    /// Sends this JSON as its body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").raw_body(body.to_string())
    }

    /// Sends these bytes as its body.
    #[must_use]
    pub fn raw_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and reads the whole answer.
    #[track_caller]
    pub fn send(self) -> Response {
        let mut stream = connect(self.address);
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        if let Some(host) = &self.host {
            head.push_str(&format!("host: {host}\r\n"));
        }
        if !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // A server that refuses a request may close the connection before it has read the body.
        let _ = stream.write_all(&self.body);
        Response::read(stream)
    }
}

/// Opens a connection. Reading from it fails after [`LIMIT`].
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// Its status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Response {
    /// Reads an answer to its end.
    #[must_use]
    #[track_caller]
    pub fn read(stream: impl Read) -> Self {
        let mut reader = BufReader::new(stream);
        let mut response = Self::read_head(&mut reader);
        let length = response.header("content-length").map(|text| text.parse().unwrap());
        match length {
            Some(length) => {
                response.body.resize(length, 0);
                reader.read_exact(&mut response.body).unwrap();
            }
            None => {
                reader.read_to_end(&mut response.body).unwrap();
            }
        }
        response
    }

    /// Reads the status line and the headers, and leaves the body.
    #[track_caller]
    pub fn read_head(reader: &mut impl BufRead) -> Self {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "the connection ended in {lines:?}");
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        let pairs = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
        let headers = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Self { status, headers, body: Vec::new() }
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Its body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Asserts the status, and returns the JSON of the body.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Asserts that it is an error of the API with this status and reason code, and returns the error.
    #[track_caller]
    pub fn error(self, status: u16, code: &str) -> Value {
        let error = self.expect(status)["error"].take();
        assert_eq!(error["reason_code"], code, "{error}");
        assert!(matches!(error["category"].as_str(), Some("INPUT" | "EXECUTION" | "ENVIRONMENT")), "{error}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        assert!(error["context"].is_object(), "{error}");
        assert!(error["actions"].as_array().is_some_and(|actions| !actions.is_empty()), "{error}");
        error
    }
}
