//! A work order in a message: a command line, a container image with environment variables, or the URL of an
//! order.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::command_line;

/// A parsed order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Runs a program of this machine with arguments and environment variables.
    Command { words: Vec<String>, env: Vec<(String, String)> },
    /// Runs a container of this image with arguments and environment variables.
    Image { image: String, args: Vec<String>, env: Vec<(String, String)> },
    /// The order has to be fetched from this URL.
    Url(String),
}

/// An order in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonOrder {
    command: Option<Words>,
    image: Option<String>,
    url: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Pairs>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`command` is a command line, or a list of its words")]
enum Words {
    Line(String),
    List(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`env` is an object of texts, or a list of texts like \"NAME=VALUE\"")]
enum Pairs {
    Map(BTreeMap<String, String>),
    List(Vec<String>),
}

const KINDS: &str = "an order has one of `command`, `image` and `url`";

impl Order {
    /// Parses an order; the error says what is wrong with it.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(payload).map_err(|_| "it is no text".to_owned())?.trim();
        if text.contains('\0') {
            return Err("it has a NUL in it".to_owned());
        }
        if text.is_empty() {
            return Err("it is empty".to_owned());
        }
        if !text.starts_with('{') {
            return Ok(Self::Command { words: command(command_line::split(text)?)?, env: Vec::new() });
        }
        let json: JsonOrder = serde_json::from_str(text).map_err(|error| error.to_string())?;
        json.order()
    }

    /// Returns the kind of the order.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Command { .. } => Kind::Command,
            Self::Image { .. } => Kind::Image,
            Self::Url(_) => Kind::Url,
        }
    }
}

/// The kinds of orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// A program of this machine
    Command,
    /// A container
    Image,
    /// An order that is fetched from a URL
    Url,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Image => "image",
            Self::Url => "url",
        }
    }
}

impl JsonOrder {
    fn order(self) -> Result<Order, String> {
        let Self { command: line, image, url, args, env } = self;
        let no_args = match args {
            Some(_) if image.is_none() => Err("`args` are for an `image`: a `command` has its own"),
            _ => Ok(()),
        };
        match (line, image, url) {
            (Some(line), None, None) => {
                no_args?;
                let words = match line {
                    Words::Line(line) => command_line::split(&line)?,
                    Words::List(words) => words,
                };
                Ok(Order::Command { words: command(words)?, env: pairs(env)? })
            }
            (None, Some(image), None) => {
                let args = args.unwrap_or_default();
                no_nul(args.iter())?;
                Ok(Order::Image { image: checked_image(image)?, args, env: pairs(env)? })
            }
            (None, None, Some(url)) => {
                no_args?;
                match env {
                    Some(_) => Err("`env` belongs into the order that is fetched".to_owned()),
                    None => Ok(Order::Url(url)),
                }
            }
            (None, None, None) => Err(format!("{KINDS}, and this one has none")),
            _ => Err(format!("{KINDS}, and this one has several")),
        }
    }
}

fn command(words: Vec<String>) -> Result<Vec<String>, String> {
    no_nul(words.iter())?;
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err("it names no program".to_owned()),
    }
}

/// Checks the name of an image: it must not look like an option of the container program.
fn checked_image(image: String) -> Result<String, String> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    match image.is_empty() || image.starts_with('-') || image.contains(odd) {
        true => Err(format!("{image:?} is no name of an image")),
        false => Ok(image),
    }
}

fn pairs(env: Option<Pairs>) -> Result<Vec<(String, String)>, String> {
    let pairs: Vec<(String, String)> = match env {
        None => Vec::new(),
        Some(Pairs::Map(map)) => map.into_iter().collect(),
        Some(Pairs::List(list)) => {
            let pair = |text: String| match text.split_once('=') {
                Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                None => Err(format!("{text:?} in `env` is not like NAME=VALUE")),
            };
            list.into_iter().map(pair).collect::<Result<_, _>>()?
        }
    };
    for (name, value) in &pairs {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("{name:?} in `env` cannot be the name of a variable"));
        }
        no_nul(std::iter::once(value))?;
    }
    Ok(pairs)
}

fn no_nul<'a>(mut texts: impl Iterator<Item = &'a String>) -> Result<(), String> {
    match texts.any(|text| text.contains('\0')) {
        true => Err("it has a NUL in it".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn k8_orders_are_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let plain = |words: &[&str]| Order::Command { words: own(words), env: Vec::new() };
        let image = Order::Image {
            image: "registry:5000/resize:2".to_owned(),
            args: own(&["--fast"]),
            env: vec![pair("SIZE", "50%"), pair("X", "")],
        };
        for (text, order) in [
            ("resize 'my picture.png'\n", plain(&["resize", "my picture.png"])),
            (r#"{"command":"resize a.png"}"#, plain(&["resize", "a.png"])),
            (r#" {"command":["resize","a b.png",""]}"#, plain(&["resize", "a b.png", ""])),
            (
                r#"{"command":"resize","env":{"SIZE":"a=b"}}"#,
                Order::Command { words: own(&["resize"]), env: vec![pair("SIZE", "a=b")] },
            ),
            (r#"{"url":"https://example.org/order"}"#, Order::Url("https://example.org/order".to_owned())),
            (r#"{"image":"registry:5000/resize:2","args":["--fast"],"env":["SIZE=50%","X="]}"#, image),
        ] {
            assert_eq!(Order::parse(text.as_bytes()), Ok(order), "{text}");
        }
    }

    #[test]
    fn k8_what_is_wrong_with_an_order_is_said() {
        for (text, said) in [
            ("", "empty"),
            ("''", "no program"),
            ("a 'b", "not closed"),
            ("a\0b", "NUL"),
            ("{", "EOF"),
            ("{}", "none"),
            (r#"{"command":"a","url":"b"}"#, "several"),
            (r#"{"command":7}"#, "list of its words"),
            (r#"{"command":[]}"#, "no program"),
            (r#"{"command":"a","args":["b"]}"#, "`args`"),
            (r#"{"command":"a","shell":true}"#, "shell"),
            (r#"{"command":"a","env":{"":"b"}}"#, "variable"),
            (r#"{"command":"a","env":["b"]}"#, "NAME=VALUE"),
            (r#"{"command":"a","env":{"b":1}}"#, "`env`"),
            (r#"{"image":"--privileged"}"#, "no name of an image"),
            (r#"{"image":"a b"}"#, "no name of an image"),
            (r#"{"url":"https://x","env":{}}"#, "`env`"),
            ("{\"command\":[\"a\",\"b\\u0000\"]}", "NUL"),
        ] {
            let error = Order::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(Order::parse(&[0xff, 0xfe]).unwrap_err().contains("no text"));
    }
}
