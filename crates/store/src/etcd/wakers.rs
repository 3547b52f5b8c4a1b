//! Wakers: a process watches a key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use lockkeeper_core::id::WakerId;
use tokio::time::{Instant, sleep, timeout};

use super::channel::{Answers, CallError, framed};
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::server::{Failure, Link, Server};
use crate::optimistic::listener::{Listener, Task, WakeSender};
use crate::{StoreError, Waker};

/// How long to wait before a watch that broke is opened again.
const PAUSE: Duration = Duration::from_millis(200);

/// An open watch. It ends when the second value is dropped.
type Watch = (Answers, SendStream<Bytes>);

/// Watches for wake-ups. When it returns, every wake-up from now on is heard.
pub(super) fn listen(server: &Server, key: Vec<u8>, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
    let (listener, wakes) = Listener::new(id, server.address())?;
    let request = framed(&WatchRequest { create: Some(WatchCreateRequest { key }) });
    let watch = server.wait(first_watch(&server.link, &request));
    let watch = watch.map_err(|failure| failure.explain(server.address()))?;
    let task = server.runtime.spawn(hear(Arc::clone(&server.link), request, watch, wakes));
    Ok(listener.keeping(Task { task, _runtime: Arc::clone(&server.runtime) }))
}

/// Opens a watch, and tries again for as long as a call may take.
async fn first_watch(link: &Link, request: &Bytes) -> Result<Watch, Failure> {
    let until = Instant::now() + link.limit();
    loop {
        match open(link, request).await {
            Err(failure) if failure.is_broken() && Instant::now() + PAUSE < until => sleep(PAUSE).await,
            opened => return opened,
        }
    }
}

/// Opens a watch. When it returns, every change from now on is heard.
async fn open(link: &Link, request: &Bytes) -> Result<Watch, Failure> {
    let channel = link.channel().await?;
    let opening = async {
        let (mut answers, stream) = channel.stream("etcdserverpb.Watch/Watch", request.clone()).await?;
        let first: Option<WatchResponse> = answers.next().await?;
        let is_open = first.is_some_and(|answer| answer.created && !answer.canceled);
        if is_open { Ok((answers, stream)) } else { Err(CallError::Broken("the watch was refused".into())) }
    };
    let failure = match timeout(link.share(), opening).await {
        Ok(Ok(watch)) => return Ok(watch),
        Ok(Err(error)) => Failure::from(error),
        Err(_) => Failure::NoAnswer(link.share()),
    };
    if failure.is_broken() {
        link.give_up(&channel).await;
    }
    Err(failure)
}

/// Passes wake-ups on. Wake-ups are lost while there is no watch, so it wakes the sleeper after each break.
async fn hear(link: Arc<Link>, request: Bytes, watch: Watch, wakes: WakeSender) {
    let mut watch = Some(watch);
    loop {
        if let Some((mut answers, _stream)) = watch.take() {
            while let Ok(Some(answer)) = answers.next::<WatchResponse>().await {
                for kv in answer.events.into_iter().filter_map(|event| event.kv) {
                    wakes.wake_with(&String::from_utf8_lossy(&kv.value));
                }
                if answer.canceled {
                    break;
                }
            }
        }
        match open(&link, &request).await {
            Ok(opened) => {
                watch = Some(opened);
                wakes.wake();
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
