//! Accepts connections within limits for number and time, and closes them when the server stops.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::guard::Peer;
use crate::write_timeout::WriteTimeout;
use crate::{App, locked};

/// The delay after a failed accept, for example when the process is out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long requests in progress may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// The maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// The number of connections of each address.
type Peers = Mutex<HashMap<IpAddr, usize>>;

/// A counted connection of an address. The count per address is limited below the total, so that one address
/// cannot lock out all others.
struct PeerConnection {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl PeerConnection {
    fn new(peers: &Arc<Peers>, peer: IpAddr, most: usize) -> Option<Self> {
        let mut counts = locked(peers);
        let count = counts.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { peers: peers.clone(), peer })
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let mut counts = locked(&self.peers);
        if let Entry::Occupied(mut count) = counts.entry(self.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

pub(crate) async fn run(app: &Arc<App>, router: Router, listener: TcpListener, stop: CancellationToken) {
    let most = app.options.most_connections;
    let permits = Arc::new(Semaphore::new(most));
    let (peers, most_of_one) = (Arc::default(), (most - most / 4).max(1));
    loop {
        let accepted = async {
            let permit = permits.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, permit))
        };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            None => break,
            Some((Ok((stream, peer)), permit)) => {
                // An address at its limit is disconnected.
                let Some(of_peer) = PeerConnection::new(&peers, peer.ip(), most_of_one) else { continue };
                let serving =
                    serve_client(app.clone(), router.clone(), stream, Peer(peer.ip()), stop.clone());
                app.env.spawn(async move {
                    serving.await;
                    // The count goes before the permit: the next client may have the same address.
                    drop(of_peer);
                    drop(permit);
                });
            }
            Some((Err(error), _)) => {
                tracing::debug!(%error, "a connection could not be accepted");
                app.env.sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    app.closing.cancel();
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let _ = app.env.within(GRACE, permits.acquire_many(all)).await;
}

async fn serve_client(app: Arc<App>, router: Router, stream: TcpStream, peer: Peer, stop: CancellationToken) {
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().call(request)
    });
    let stream = WriteTimeout::new(stream, app.env.clone(), app.options.write_patience);
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(app.options.patience)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), answer)
    );
    // A connection error, such as an early hang-up or a missing request, concerns only this client.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = app.env.within(GRACE, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q21_no_address_gets_all_connections() {
        let peers = Arc::<Peers>::default();
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let mut held: Vec<PeerConnection> =
            (0..3).filter_map(|_| PeerConnection::new(&peers, one, 3)).collect();
        assert_eq!(held.len(), 3);
        assert!(PeerConnection::new(&peers, one, 3).is_none(), "it has all that one may have");
        assert!(PeerConnection::new(&peers, other, 3).is_some(), "others get some");
        held.pop();
        assert!(PeerConnection::new(&peers, one, 3).is_some(), "what is given back can be had again");
        drop(held);
        assert!(locked(&peers).is_empty(), "nobody is remembered");
    }
}
