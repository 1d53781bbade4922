//! `serve` under load: 500 requests a second push a message each, and 50 clients pull with a long poll, while
//! workers in the server's process handle the rest. The server is a separate process. Requests leave by a
//! fixed timetable, and each latency counts from the scheduled time, so a stalled server cannot hide its
//! stalls.

use std::io::{BufRead, BufReader as LineReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sawmill::Context;
use sawmill::engine::runtime::Env;
use sawmill_serve::{Options, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::percentile;
use crate::report::{Figure, Report, progress};
use crate::settings::Settings;
use crate::subject::Subject;

const PER_SECOND: u64 = 500;
/// Concurrent requests.
const CONNECTIONS: usize = 64;
const POLLS: usize = 50;
/// One push in this many is for the polling clients, which acknowledge each message with a request of its
/// own.
const FOR_POLLS: u64 = 25;
/// The topics for the workers and for the polling clients.
const WORKED: &str = "worked";
const PULLED: &str = "pulled";

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    progress(&format!("serve, {} s", settings.serve_seconds));
    let store = subject.store("serve");
    let engine = std::env::args().nth(1).unwrap_or_default();
    let mut child = Command::new(std::env::current_exe()?)
        .args([&engine, "child", "serve", &store])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = LineReader::new(child.stdout.take().ok_or("the server says nothing")?);
    let mut address = String::new();
    said.read_line(&mut address)?;
    let before = load_average();
    let load = load(address.trim().parse()?, settings.serve_seconds * PER_SECOND).await;
    // The server ends when its standard input is closed.
    drop(child.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest)?;
    let ended = child.wait()?;
    let mut load = load?;
    if !ended.success() {
        return Err(format!("the server ended with {ended}").into());
    }
    let worked: u64 = rest.trim().parse()?;
    if worked + load.pulled != load.took.len() as u64 {
        return Err(format!("{worked} worked, {} pulled, of {}", load.pulled, load.took.len()).into());
    }
    subject.remove(&store).await?;
    load.took.sort_by(f64::total_cmp);
    report.add(Figure::new("serve_rate", "push requests answered", "/s", load.rate));
    for (key, name, part) in
        [("serve_p50", "p50", 0.5), ("serve_p99", "p99", 0.99), ("serve_slowest", "slowest", 1.0)]
    {
        let what = format!("push over HTTP, {name}");
        report.add(Figure::new(key, what, "ms", percentile(&load.took, part)));
    }
    report.note(format!(
        "serve: {} pushes, {} pulled by {POLLS} long polls, {worked} worked, no error; load average before {before}, after {}",
        load.took.len(),
        load.pulled,
        load_average()
    ));
    Ok(())
}

fn load_average() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().unwrap_or_default().to_owned()
}

struct Load {
    /// The milliseconds of each push.
    took: Vec<f64>,
    rate: f64,
    pulled: u64,
}

async fn load(address: SocketAddr, pushes: u64) -> Result<Load, Failure> {
    let env = Env::system();
    let (pulled, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut polls = JoinSet::new();
    for _ in 0..POLLS {
        polls.spawn(poll(address, pulled.clone(), is_over.clone()));
    }
    let (next, began) = (Arc::new(AtomicU64::new(0)), env.now() + Duration::from_millis(500));
    let mut pushing = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (env, next) = (env.clone(), next.clone());
        pushing.spawn(async move {
            let mut client = Client::connect(address).await?;
            let mut took = Vec::new();
            loop {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                if nth >= pushes {
                    return Ok::<_, Failure>(took);
                }
                let at = began + Duration::from_secs(1) * u32::try_from(nth)? / PER_SECOND as u32;
                env.sleep(at.since(env.now())).await;
                let topic = if nth % FOR_POLLS == 0 { PULLED } else { WORKED };
                let path = format!("/api/v1/topics/{topic}/messages");
                client.post(&path, &json!({ "payload": nth }), 201).await?;
                took.push(env.now().since(at).as_secs_f64() * 1e3);
            }
        });
    }
    let mut took = Vec::new();
    while let Some(one) = pushing.join_next().await {
        took.extend(one??);
    }
    let rate = took.len() as f64 / env.now().since(began).as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    while let Some(one) = polls.join_next().await {
        one??;
    }
    let (pulled, wanted) = (pulled.load(Ordering::Relaxed), pushes.div_ceil(FOR_POLLS));
    if pulled != wanted {
        return Err(format!("{pulled} messages were pulled, of {wanted}").into());
    }
    Ok(Load { took, rate, pulled })
}

/// Pulls and acknowledges until nothing more comes.
async fn poll(address: SocketAddr, pulled: Arc<AtomicU64>, is_over: Arc<AtomicBool>) -> Result<(), Failure> {
    let mut client = Client::connect(address).await?;
    loop {
        let was_over = is_over.load(Ordering::Relaxed);
        let path = format!("/api/v1/topics/{PULLED}/groups/default/pull");
        let answer = client.post(&path, &json!({ "wait_seconds": 5 }), 200).await?;
        let jobs = answer["jobs"].as_array().ok_or("a pull without jobs")?;
        if jobs.is_empty() && was_over {
            return Ok(());
        }
        for job in jobs {
            let receipt = job["receipt"].as_str().ok_or("a job without a receipt")?;
            client.post(&format!("/api/v1/topics/{PULLED}/jobs/{receipt}/done"), &json!({}), 204).await?;
            pulled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A keep-alive connection with a minimal client, which must not cost more than the server.
struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address })
    }

    async fn post(&mut self, path: &str, body: &Value, wanted: u16) -> Result<Value, Failure> {
        let (body, address) = (body.to_string(), self.address);
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err("the server hung up".into());
            }
            let text = line.trim_end();
            if status == 0 {
                status = text.split(' ').nth(1).unwrap_or_default().parse()?;
            } else if text.is_empty() {
                break;
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        if status != wanted {
            return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? })
    }
}

/// Runs the server in its own process: prints its address, serves until standard input is closed, and prints
/// how many messages its workers have handled.
pub(crate) async fn serve(subject: &dyn Subject, store: &str) -> Result<(), Failure> {
    let env = Env::system();
    let opened = subject.open(store, env.clone()).await?;
    let mill = opened.mill();
    for topic in [WORKED, PULLED] {
        mill.create_topic(topic).await?;
    }
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(mill.worker(WORKED).concurrency(4).start(|_: Context| async {}).await?);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let (stop, over) = (CancellationToken::new(), CancellationToken::new());
    let ended = over.clone();
    std::thread::spawn(move || {
        // Input, end of file and errors all end the server.
        let _ = std::io::stdin().read(&mut [0]);
        ended.cancel();
    });
    let server = Server::new(mill.clone(), env.clone(), Options::default());
    let (serving, until) = (server.clone(), stop.clone());
    let serving = tokio::spawn(async move { serving.listen(listener, until).await });
    over.cancelled().await;
    let mut worked = 0;
    for worker in &workers {
        worker.drained().await;
        worked += worker.counts().done;
    }
    stop.cancel();
    serving.await?;
    println!("{worked}");
    for worker in &workers {
        worker.stop().await;
    }
    Ok(())
}
