//! A real HTTP server, on hyper.

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

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// When it was there.
    pub(crate) at: SystemTime,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

type Answers = dyn Fn(usize, &Heard) -> Response<Full<Bytes>> + Send + Sync;

pub(crate) struct Web {
    _runtime: Runtime,
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Web {
    /// Starts one that answers by this, which is told how many requests came before.
    pub(crate) fn start(
        tls: Option<Arc<rustls::ServerConfig>>,
        answers: impl Fn(usize, &Heard) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, answers): (_, Arc<Answers>) = (Arc::default(), Arc::new(answers));
        runtime.spawn(accept(listener, tls.map(TlsAcceptor::from), Arc::clone(&heard), answers));
        Self { _runtime: runtime, port, heard }
    }

    /// What came so far.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

pub(crate) fn page(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::from(body)).unwrap()
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    heard: Arc<Mutex<Vec<Heard>>>,
    answers: Arc<Answers>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, heard, answers) = (tls.clone(), heard.clone(), answers.clone());
        tokio::spawn(async move {
            match tls {
                None => talk(stream, heard, answers).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        talk(stream, heard, answers).await;
                    }
                }
            }
        });
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    heard: Arc<Mutex<Vec<Heard>>>,
    answers: Arc<Answers>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (heard, answers) = (heard.clone(), answers.clone());
        async move {
            let (head, body) = request.into_parts();
            let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
                (name.to_string(), value.to_str().unwrap().to_owned())
            };
            let came = Heard {
                path: head.uri.to_string(),
                headers: head.headers.iter().map(header).collect(),
                body: body.collect().await.unwrap().to_bytes(),
                at: SystemTime::now(),
            };
            let before = {
                let mut heard = heard.lock().unwrap();
                heard.push(came.clone());
                heard.len() - 1
            };
            Ok::<_, Infallible>(answers(before, &came))
        }
    });
    // Who asks may hang up.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
