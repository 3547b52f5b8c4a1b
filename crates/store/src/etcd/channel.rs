//! gRPC channel: calls of one etcd member over one HTTP/2 connection, which all calls share.

use std::fmt;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::address::{Endpoint, EtcdAddress};
use super::messages::{AuthenticateRequest, AuthenticateResponse};

/// Flow-control window: how much a member may send before this side has read it. Answers with all records are large.
const WINDOW: u32 = 8 << 20;
const HEAD: usize = 5;

/// A connection to one member.
#[derive(Clone)]
pub(super) struct Channel {
    send: SendRequest<Bytes>,
    /// Scheme and host.
    authority: Arc<str>,
    /// The token that the member returned for the password.
    token: Option<HeaderValue>,
    driver: AbortHandle,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The connection broke, or cannot be made.
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// The member answered with an error.
    Status(Status),
}

/// A gRPC status that is not OK.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) code: u32,
    message: String,
}

const UNAUTHENTICATED: u32 = 16;

impl Status {
    /// Whether the member could not answer: the outcome of the call is unknown, and another member may know it.
    pub(super) fn is_unavailable(&self) -> bool {
        // Canceled, deadline exceeded, unavailable, or the token has expired.
        matches!(self.code, 1 | 4 | 14 | UNAUTHENTICATED)
    }

    /// Whether the object exists already.
    pub(super) fn is_taken(&self) -> bool {
        // Failed precondition.
        self.code == 9
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gRPC status {})", self.message, self.code)
    }
}

impl std::error::Error for Status {}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for CallError {
    fn from(error: E) -> Self {
        Self::Broken(Box::new(error))
    }
}

impl Channel {
    /// Connects to a member, and authenticates if there is a password.
    pub(super) async fn connect(address: &EtcdAddress, endpoint: &Endpoint) -> Result<Self, CallError> {
        let socket = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        socket.set_nodelay(true)?;
        let mut channel = match &address.tls {
            None => Self::over(socket, format!("http://{endpoint}")).await?,
            Some(tls) => {
                let name = rustls::pki_types::ServerName::try_from(endpoint.host.clone())?;
                Self::over(tls.connect(name, socket).await?, format!("https://{endpoint}")).await?
            }
        };
        if let Some((name, password)) = &address.user {
            let login = AuthenticateRequest { name: name.clone(), password: password.clone() };
            let answer: AuthenticateResponse =
                channel.call("etcdserverpb.Auth/Authenticate", framed(&login)).await?;
            let mut token = HeaderValue::try_from(answer.token)?;
            token.set_sensitive(true);
            channel.token = Some(token);
        }
        Ok(channel)
    }

    async fn over<T>(socket: T, authority: String) -> Result<Self, CallError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
        let (send, connection) = builder.handshake(socket).await?;
        let driver = tokio::spawn(async move {
            // The calls of the connection return its error.
            let _ = connection.await;
        });
        Ok(Self { send, authority: authority.into(), token: None, driver: driver.abort_handle() })
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// Closes the connection. Calls that wait for an answer fail.
    pub(super) fn close(&self) {
        self.driver.abort();
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.driver.id() == other.driver.id()
    }

    /// One request, one answer.
    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: Bytes,
    ) -> Result<A, CallError> {
        let (mut answers, _) = self.open(method, request, true).await?;
        let answer = answers.next().await?;
        let answer = answer.ok_or_else(|| CallError::Broken("the answer is empty".into()))?;
        // The status comes after the answer.
        while answers.next::<A>().await?.is_some() {}
        Ok(answer)
    }

    /// One request and many answers. The stream ends when the second value is dropped.
    pub(super) async fn stream(
        &self,
        method: &str,
        request: Bytes,
    ) -> Result<(Answers, SendStream<Bytes>), CallError> {
        self.open(method, request, false).await
    }

    async fn open(
        &self,
        method: &str,
        request: Bytes,
        is_last: bool,
    ) -> Result<(Answers, SendStream<Bytes>), CallError> {
        let mut send = self.send.clone().ready().await?;
        let mut head = Request::post(format!("{}/{method}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            // Without a leader, the member fails at once instead of waiting for one.
            .header("hasleader", "true");
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let (response, mut stream) = send.send_request(head.body(())?, false)?;
        stream.send_data(request, is_last)?;
        let (head, body) = response.await?.into_parts();
        check(&head.headers)?;
        Ok((Answers { body, received: BytesMut::new() }, stream))
    }
}

/// The answers of a call.
pub(super) struct Answers {
    body: RecvStream,
    received: BytesMut,
}

impl Answers {
    /// The next answer; none at the end.
    pub(super) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, CallError> {
        loop {
            if let Some(bytes) = unframed(&mut self.received) {
                return Ok(Some(A::decode(bytes)?));
            }
            match self.body.data().await {
                Some(part) => {
                    let part = part?;
                    self.body.flow_control().release_capacity(part.len())?;
                    self.received.extend_from_slice(&part);
                }
                None => {
                    let trailers = self.body.trailers().await?;
                    check(&trailers.unwrap_or_default())?;
                    return Ok(None);
                }
            }
        }
    }
}

/// A message with its length before it.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    bytes.extend(message.encode_to_vec());
    bytes.freeze()
}

/// Removes the first message from the received bytes, if it is complete.
fn unframed(received: &mut BytesMut) -> Option<Bytes> {
    let length: [u8; 4] = received.get(1..HEAD)?.try_into().ok()?;
    let length = u32::from_be_bytes(length) as usize;
    if received.len() < HEAD + length {
        return None;
    }
    received.advance(HEAD);
    Some(received.split_to(length).freeze())
}

/// Fails if the headers have a status other than OK.
fn check(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status").map(str::parse) {
        None | Some(Ok(0)) => Ok(()),
        Some(code) => Err(CallError::Status(Status {
            code: code.unwrap_or(2),
            message: crate::server_address::decoded(text("grpc-message").unwrap_or_default()),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::messages::KeyValue;

    #[test]
    fn messages_are_found_in_pieces_of_any_size() {
        let messages = [b"a".to_vec(), Vec::new(), vec![7; 300]];
        let messages = messages.map(|value| KeyValue { key: b"key".to_vec(), mod_revision: 9, value });
        let sent: Vec<u8> = messages.iter().flat_map(|message| framed(message).to_vec()).collect();
        for size in [1, 3, 7, sent.len()] {
            let (mut received, mut found) = (BytesMut::new(), Vec::new());
            for part in sent.chunks(size) {
                received.extend_from_slice(part);
                while let Some(bytes) = unframed(&mut received) {
                    found.push(KeyValue::decode(bytes).unwrap());
                }
            }
            assert_eq!(found, messages);
        }
    }

    #[test]
    fn a_status_is_read_from_headers() {
        let mut headers = HeaderMap::new();
        assert!(check(&headers).is_ok());
        headers.insert("grpc-status", HeaderValue::from_static("0"));
        assert!(check(&headers).is_ok());
        headers.insert("grpc-status", HeaderValue::from_static("14"));
        headers.insert("grpc-message", HeaderValue::from_static("no%20leader"));
        let Err(CallError::Status(status)) = check(&headers) else { panic!("it is a status") };
        assert!(status.is_unavailable());
        assert_eq!(status.to_string(), "no leader (gRPC status 14)");
    }
}
