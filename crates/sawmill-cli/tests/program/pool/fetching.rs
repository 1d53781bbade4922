//! Orders that are fetched from a URL: K8.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::fixture::{Pool, TTL};
use crate::support::Running;

/// Starts a web server on its own port that answers every path with this function. It ends with the test
/// process.
fn serve(
    tls: Option<Arc<rustls::ServerConfig>>,
    answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, tls) = (answer.clone(), tls.clone());
            std::thread::spawn(move || match tls {
                None => talk(stream, &*answer),
                Some(tls) => {
                    let connection = rustls::ServerConnection::new(tls).unwrap();
                    talk(rustls::StreamOwned::<_, TcpStream>::new(connection, stream), &*answer);
                }
            });
        }
    });
    port
}

fn talk(mut stream: impl Read + Write, answer: &dyn Fn(&str) -> Vec<u8>) {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1..) => request.push(byte[0]),
            _ => return,
        }
    }
    let request = String::from_utf8(request).unwrap();
    // The client may hang up early.
    let _ = stream.write_all(&answer(request.split(' ').nth(1).unwrap()));
    let _ = stream.flush();
}

fn page(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Sends one order, runs one attempt, and returns the reasons of dead letters.
fn fate(pool: &Pool, url: &str, args: &[&str]) -> String {
    pool.send(&[&format!("{{\"url\": \"{url}\"}}")]);
    let args = [args, &["--retries", "0", "--ttl", TTL]].concat();
    Running::start(&mut pool.instance(1, &args)).wait().ok();
    let dead = pool.dead();
    pool.run(&["dead", "drop", &pool.orders, "--all", "--yes"]);
    dead
}

#[test]
fn k8_an_order_is_fetched_from_a_url() {
    let test = "k8_an_order_is_fetched_from_a_url";
    let Some(pool) = Pool::of(test) else { return };
    let port = serve(None, |path| match path {
        "/order?key=17" => page("200 OK", b"./job fetched 0"),
        "/json" => page("200 OK", br#"{"command": ["./job", "also", "0"]}"#),
        "/away" => page("302 Found\r\nLocation: https://example.org/", b""),
        "/again" => page("200 OK", br#"{"url": "https://example.org/"}"#),
        "/large" => page("200 OK", &vec![b' '; 100_000]),
        "/slow" => {
            std::thread::sleep(Duration::from_secs(20));
            page("200 OK", b"true")
        }
        _ => page("404 Not Found", b"no"),
    });
    let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
    fate(&pool, &at("/order?key=17"), &[]);
    assert_eq!(pool.count("end fetched"), 1, "{:?}", pool.journal());
    fate(&pool, &format!("http://localhost:{port}/json"), &[]);
    assert_eq!(pool.count("end also"), 1, "{:?}", pool.journal());
    for (url, args, said) in [
        (at("/missing?key=secret"), &[][..], "404"),
        (at("/away"), &[], "redirects are not followed"),
        (at("/again"), &[], "URL again"),
        (at("/large"), &["--fetch-most", "64K"], "larger than"),
        (at("/slow"), &["--fetch-timeout", "1s"], "longer than 1s"),
        ("http://example.org/order".to_owned(), &[], "use https"),
        ("file:///etc/passwd".to_owned(), &[], "no host"),
    ] {
        let fate = fate(&pool, &url, args);
        assert!(fate.contains(said) && !fate.contains("secret"), "{url}: {fate}");
    }
}

#[test]
fn k8_an_order_is_fetched_over_https_from_those_the_system_trusts() {
    let test = "k8_an_order_is_fetched_over_https_from_those_the_system_trusts";
    let Some(pool) = Pool::of(test) else { return };
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority, &authority_key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    let port = serve(Some(Arc::new(tls)), |_| page("200 OK", b"./job safe 0"));
    let order = format!("{{\"url\": \"https://127.0.0.1:{port}/order\"}}");
    let trusted = pool.place.write("ca.pem", &authority.pem());

    pool.send(&[&order]);
    Running::start(&mut pool.instance(1, &["--retries", "0", "--ttl", TTL])).wait().ok();
    let dead = pool.dead();
    assert!(dead.to_lowercase().contains("certificate") && pool.count("start") == 0, "{dead}");

    pool.send(&[&order]);
    let mut instance = pool.instance(1, &["--ttl", TTL]);
    Running::start(instance.env("SSL_CERT_FILE", &trusted).env_remove("SSL_CERT_DIR")).wait().ok();
    assert_eq!(pool.count("end safe"), 1);
}
