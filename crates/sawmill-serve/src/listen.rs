//! Connections: accepted within limits of number and time, ended when the server stops.

use std::sync::Arc;
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

use crate::App;
use crate::guard::Peer;
use crate::impatient::Impatient;

/// How long to wait when no connection could be accepted, for want of files, say.
const BREATHER: Duration = Duration::from_millis(100);
/// How long what is under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// The most bytes of the head of a request.
const MOST_HEAD: usize = 32 << 10;

pub(crate) async fn run(app: &Arc<App>, router: Router, listener: TcpListener, stop: CancellationToken) {
    let most = app.options.most_connections;
    let places = Arc::new(Semaphore::new(most));
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            None => break,
            Some((Ok((stream, peer)), place)) => {
                let talk = talk(app.clone(), router.clone(), stream, Peer(peer.ip()), stop.clone());
                app.env.spawn(async move {
                    talk.await;
                    drop(place);
                });
            }
            Some((Err(error), _)) => {
                tracing::debug!(%error, "a connection could not be accepted");
                app.env.sleep(BREATHER).await;
            }
        }
    }
    app.closing.cancel();
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let _ = app.env.within(GRACE, places.acquire_many(all)).await;
}

async fn talk(app: Arc<App>, router: Router, stream: TcpStream, peer: Peer, stop: CancellationToken) {
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().call(request)
    });
    let taken = Impatient::new(stream, app.env.clone(), app.options.write_patience);
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(app.options.patience)
            .max_buf_size(MOST_HEAD)
            .serve_connection(TokioIo::new(taken), answer)
    );
    // Who hangs up early, or says nothing, has no answer; nobody else is the worse for it.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = app.env.within(GRACE, connection).await;
}
