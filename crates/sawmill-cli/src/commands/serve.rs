//! `sawmill serve`: serves the store over HTTP: an API, a dashboard and metrics.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use sawmill_serve::{Door, Options, Server};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::metrics::{self, Address};
use crate::session::Session;
use crate::terminal::output::note;
use crate::terminal::text;

const DEFAULT_PORT: u16 = 7171;

#[derive(Debug, Args)]
#[command(after_help = "\
By default the server listens on localhost only, and requests need no access key. Access keys are
required as soon as one exists, with --require-keys, and if --allow-host names a public host. They
are always required on an address that others can reach; `sawmill key create` creates one.

The server does not encrypt. Put a proxy with TLS in front of it, pass its name with --allow-host,
and use --secure-cookies. Use --require-keys behind every proxy: without access keys the server
refuses only requests that the proxy marks as forwarded.

The API is described at /openapi.json, metrics are at /metrics, and /healthz tells whether the store
answers. When the server stops, pulled messages without an answer are given back and run again.

Examples:
  sawmill serve
  sawmill serve --listen 0.0.0.0:7171 --allow-host queue.example.com --secure-cookies
  sawmill serve --listen 0 --json")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: Settings,
}

/// The options, which the configuration file can set too.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Settings {
    /// The address to listen on. A port alone listens on localhost only [default: 127.0.0.1:7171]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    /// Require an access key for every request, local ones included
    #[arg(long, alias = "require-tokens", num_args = 0, default_missing_value = "true")]
    #[serde(alias = "require-tokens")]
    require_keys: Option<bool>,
    /// A host name that requests may use, besides localhost and IP addresses. Repeatable
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Set the Secure flag on the login cookie: browsers then send it over HTTPS only
    #[arg(long, num_args = 0, default_missing_value = "true")]
    secure_cookies: Option<bool>,
    /// The largest request body [default: 24M]
    #[arg(long, value_name = "SIZE")]
    body_limit: Option<Size>,
    /// The request limit per second, for each access key and for each address without one [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
}

/// A number of bytes above 0.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Size(usize);

impl std::str::FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match usize::try_from(text::bytes(text)?) {
            Ok(bytes) if bytes > 0 => Ok(Self(bytes)),
            _ => Err(format!("{text:?} lets nothing in: choose a size like 24M")),
        }
    }
}

impl TryFrom<String> for Size {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Settings {
    /// Combines two sets of options; `self` wins where both set one.
    fn over(&self, weaker: &Settings) -> Settings {
        let hosts = if self.allow_host.is_empty() { &weaker.allow_host } else { &self.allow_host };
        Settings {
            listen: self.listen.or(weaker.listen),
            require_keys: self.require_keys.or(weaker.require_keys),
            allow_host: hosts.clone(),
            secure_cookies: self.secure_cookies.or(weaker.secure_cookies),
            body_limit: self.body_limit.or(weaker.body_limit),
            rate_limit: self.rate_limit.or(weaker.rate_limit),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listen.map_or_else(|| ([127, 0, 0, 1], DEFAULT_PORT).into(), Address::socket)
    }
}

/// The address of the server, as it is printed.
#[derive(Debug, Serialize)]
struct Serving {
    url: String,
    needs_key: bool,
}

pub(crate) async fn run(args: ServeArgs, session: &Session) -> Result<(), Failure> {
    let settings = args.settings.over(&session.file.serve);
    let recorder = metrics::count(&session.env)?;
    let stop = stopped_by_signals(session)?;
    let mill = session.open().await?;
    let door = door(&settings, mill.admin().access_keys().await?.is_empty())?;
    let (listener, address) = listen(settings.address()).await?;
    let usual = Options::default();
    let options = Options {
        door,
        hosts: settings.allow_host.clone(),
        most_bytes: settings.body_limit.map_or(usual.most_bytes, |size| size.0),
        most_per_second: settings.rate_limit.unwrap_or(usual.most_per_second),
        secure_cookies: settings.secure_cookies.unwrap_or(false),
        metrics: Some(Arc::new(move || recorder.render())),
        ..usual
    };
    let serving = Serving { url: format!("http://{address}/"), needs_key: door == Door::Keys };
    let server = Server::new(mill, session.env.clone(), options);
    session.out.object(&serving, |serving| serving.url.clone())?;
    note(match (door, address.ip().is_loopback()) {
        (Door::Open, _) => "Everybody on this machine has full access; nobody else gets in.",
        (Door::Keys, true) => "Each request needs an access key: `sawmill key list` lists them.",
        (Door::Keys, false) => {
            "Others can reach it: each request needs an access key (`sawmill key list`). It does not encrypt: use a proxy that does."
        }
    });
    server.listen(listener, stop).await;
    Ok(())
}

/// Decides who may send requests. Access keys are required if others can reach the server, and then one
/// must exist.
fn door(settings: &Settings, has_no_keys: bool) -> Result<Door, Failure> {
    let address = settings.address();
    let why = if !address.ip().is_loopback() {
        Some("others can reach it".to_owned())
    } else if settings.require_keys.unwrap_or(false) {
        Some("--require-keys is given".to_owned())
    } else {
        // A public name means that a proxy forwards requests of others.
        let public = settings.allow_host.iter().find(|name| !is_of_this_machine(name));
        public.map(|name| format!("--allow-host says that others can reach it as {name}"))
    };
    match why {
        _ if !has_no_keys => Ok(Door::Keys),
        None => Ok(Door::Open),
        Some(why) => Err(Failure::usage(format!(
            "serving at {address} needs an access key, as {why}, and there is none: make one with `sawmill key create --access admin`"
        ))),
    }
}

/// True for names that only processes on this machine can use.
fn is_of_this_machine(name: &str) -> bool {
    let name = name.trim_matches(['[', ']']).to_ascii_lowercase();
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let wrong = |error: std::io::Error| {
        Failure::failed(format!(
            "nothing can be served at {address}: {error}: end what listens there, or choose another --listen address"
        ))
    };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let address = listener.local_addr().map_err(wrong)?;
    Ok((listener, address))
}

/// Returns a token that SIGINT or SIGTERM cancels. The second signal ends the process at once.
fn stopped_by_signals(session: &Session) -> Result<CancellationToken, Failure> {
    let wrong = |error| Failure::failed(format!("signals cannot be caught: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    session.env.spawn(async move {
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked.is_cancelled() {
                std::process::exit(1);
            }
            asked.cancel();
        }
    });
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listen: &str, require_keys: bool) -> Settings {
        let listen = Some(listen.parse().unwrap());
        Settings { listen, require_keys: Some(require_keys), ..Settings::default() }
    }

    #[test]
    fn q21_where_others_can_reach_it_a_token_is_needed() {
        assert_eq!(door(&Settings::default(), true).unwrap(), Door::Open);
        assert_eq!(door(&settings("7171", false), false).unwrap(), Door::Keys, "there are some");
        assert_eq!(door(&settings("0.0.0.0:7171", false), false).unwrap(), Door::Keys);
        for (listen, is_required) in [("0.0.0.0:7171", false), ("[::]:7171", false), ("127.0.0.1:1", true)] {
            let said = door(&settings(listen, is_required), true).unwrap_err().to_string();
            assert!(said.contains("sawmill key create"), "{said}");
        }
    }

    #[test]
    fn q21_where_a_proxy_leads_others_here_a_token_is_needed() {
        let called = |name: &str| Settings { allow_host: vec![name.to_owned()], ..Settings::default() };
        for name in ["localhost", "Mill.localhost", "127.0.0.1", "[::1]"] {
            assert_eq!(door(&called(name), true).unwrap(), Door::Open, "{name}");
        }
        for name in ["queue.example.com", "localhost.example.com", "10.0.0.7"] {
            let said = door(&called(name), true).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains("sawmill key create"), "{said}");
            assert_eq!(door(&called(name), false).unwrap(), Door::Keys);
        }
    }

    #[test]
    fn the_file_has_the_names_of_the_flags() {
        let all = "listen = '0.0.0.0:1'\nrequire-keys = true\nallow-host = ['q.example']\n\
                   secure-cookies = true\nbody-limit = '1M'\nrate-limit = 5";
        let file: Settings = toml::from_str(all).unwrap();
        assert_eq!(Settings::default().over(&file), file, "every one is merged");
        assert_eq!(settings("9", false).over(&file).address(), ([127, 0, 0, 1], 9).into());
        let former: Settings = toml::from_str("require-tokens = true").unwrap();
        assert_eq!(former.require_keys, Some(true), "the former name");
        for wrong in ["body-limit = '0'", "body-limit = 'x'", "listen = 'x'", "colour = 1"] {
            assert!(toml::from_str::<Settings>(wrong).is_err(), "{wrong}");
        }
    }
}
