//! A real HTTP server, built on hyper.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// The time of its arrival.
    pub(crate) at: SystemTime,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

type Answers = dyn Fn(usize, &Received) -> Response<Full<Bytes>> + Send + Sync;

pub(crate) struct Web {
    _runtime: Runtime,
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Web {
    /// Starts a server. `answers` gets the number of earlier requests.
    pub(crate) fn start(
        tls: Option<Arc<rustls::ServerConfig>>,
        answers: impl Fn(usize, &Received) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (received, answers): (_, Arc<Answers>) = (Arc::default(), Arc::new(answers));
        runtime.spawn(accept(listener, tls.map(TlsAcceptor::from), Arc::clone(&received), answers));
        Self { _runtime: runtime, port, received }
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

pub(crate) fn page(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::from(body)).unwrap()
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    received: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Answers>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, received, answers) = (tls.clone(), received.clone(), answers.clone());
        tokio::spawn(async move {
            match tls {
                None => talk(stream, received, answers).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        talk(stream, received, answers).await;
                    }
                }
            }
        });
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    received: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Answers>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (received, answers) = (received.clone(), answers.clone());
        async move {
            let (head, body) = request.into_parts();
            let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
                (name.to_string(), value.to_str().unwrap().to_owned())
            };
            let came = Received {
                path: head.uri.to_string(),
                headers: head.headers.iter().map(header).collect(),
                body: body.collect().await.unwrap().to_bytes(),
                at: SystemTime::now(),
            };
            let before = {
                let mut received = received.lock().unwrap();
                received.push(came.clone());
                received.len() - 1
            };
            Ok::<_, Infallible>(answers(before, &came))
        }
    });
    // The client may hang up.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
