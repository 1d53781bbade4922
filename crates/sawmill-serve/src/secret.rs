//! Tokens: the secrets that clients hold, and the digests by which the store knows them.
//!
//! A token is `sawmill_ID_SECRET`. The id finds its grant; the secret has 256 random bits, so a plain SHA-256 is digest enough.
//! Digests are compared in constant time, also when there is no such grant.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Access, ErrorKind, Grant, Sawmill, TopicName};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::locked;

const PREFIX: &str = "sawmill_";
/// How long a grant is believed without asking the store: so long after it is revoked it may still be used.
const BELIEVED: Duration = Duration::from_secs(2);
/// How many grants are remembered.
const MOST_REMEMBERED: usize = 10_000;

/// Makes a token and keeps its grant in the store. The token is the first of the two, and is not to be had again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = sawmill::Sawmill::open("memory:").await?;
/// use sawmill::{Access, env::Env};
///
/// let (token, grant) =
///     sawmill_serve::secret::create(&mill, &Env::system(), Some("emails".parse()?), Access::Write, "shop").await?;
/// assert!(token.starts_with("sawmill_") && !grant.digest.contains(&token));
/// # Ok(()) }
/// ```
pub async fn create(
    mill: &Sawmill,
    env: &Env,
    topic: Option<TopicName>,
    access: Access,
    note: &str,
) -> sawmill::Result<(String, Grant)> {
    let id = format!("{:010x}", env.dice().roll() >> 24);
    let secret: Vec<u8> = (0..4).flat_map(|_| env.dice().roll().to_be_bytes()).collect();
    let secret = BASE64_URL_SAFE_NO_PAD.encode(secret);
    let digest = digest("token", &id, &secret);
    let grant = Grant { digest, topic, access, created: env.wall(), note: note.to_owned(), id };
    mill.add_grant(&grant).await?;
    Ok((format!("{PREFIX}{}_{secret}", grant.id), grant))
}

/// What the header of the page has to say beside the cookie with this token.
pub(crate) fn csrf(token: &str) -> String {
    digest("csrf", "", token)
}

/// True if both are the same, found out in the same time whether they are or not.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

fn digest(purpose: &str, id: &str, secret: &str) -> String {
    let mut hash = Sha256::new();
    for part in ["sawmill", purpose, id, secret] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// True if this is the secret of the grant, found out in the same time if there is no grant.
fn is_of(grant: Option<&Grant>, id: &str, secret: &str) -> bool {
    // Nothing has this digest, and it is as long as any.
    let nothing = format!("sha256:{:064}", 0);
    let is_same = same(&digest("token", id, secret), grant.map_or(&nothing, |grant| &grant.digest));
    is_same && grant.is_some()
}

/// The id and the secret of a token, if it is written like one.
fn parts(token: &str) -> Option<(&str, &str)> {
    token.strip_prefix(PREFIX)?.split_once('_').filter(|(id, secret)| id.len() <= 40 && secret.len() <= 100)
}

/// The grants that were asked for lately.
pub(crate) struct Tokens {
    mill: Sawmill,
    env: Env,
    seen: Mutex<BTreeMap<String, (Moment, Option<Grant>)>>,
    /// When the store was last asked whether there are any.
    asked: tokio::sync::Mutex<Option<Moment>>,
    /// The store has said at least once whether there are any.
    is_known: AtomicBool,
    exist: AtomicBool,
}

impl Tokens {
    pub(crate) fn new(mill: Sawmill, env: Env) -> Self {
        let (seen, asked, is_known, exist) = Default::default();
        Self { mill, env, seen, asked, is_known, exist }
    }

    /// The grant of a token; `None` if it is none, or was revoked.
    pub(crate) async fn check(&self, token: &str) -> sawmill::Result<Option<Grant>> {
        let Some((id, secret)) = parts(token) else { return Ok(None) };
        let grant = self.grant(id).await?;
        Ok(grant.as_ref().filter(|_| is_of(grant.as_ref(), id, secret)).cloned())
    }

    /// True if this token was good when the store was last asked, however long ago: who sends it is not trying out tokens.
    pub(crate) fn knows(&self, token: &str) -> bool {
        let Some((id, secret)) = parts(token) else { return false };
        let grant = locked(&self.seen).get(id).and_then(|(_, grant)| grant.clone());
        is_of(grant.as_ref(), id, secret)
    }

    /// True if the store has tokens, or had some: what was closed once stays closed. It is asked now and then; nobody is let in
    /// before it has said once that there are none.
    pub(crate) async fn exist(&self) -> sawmill::Result<bool> {
        if self.exist.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // One asks for all; once it is known, the others need not wait for that.
        let mut asked = match self.asked.try_lock() {
            Ok(asked) => asked,
            Err(_) if self.is_known.load(Ordering::SeqCst) => return Ok(self.exist.load(Ordering::SeqCst)),
            Err(_) => self.asked.lock().await,
        };
        if asked.is_none_or(|asked| self.env.now().since(asked) >= BELIEVED) {
            match self.mill.grants().await {
                Ok(grants) => self.exist.store(!grants.is_empty(), Ordering::SeqCst),
                // There are some that this version does not understand.
                Err(error) if error.kind() == ErrorKind::Corrupt => self.exist.store(true, Ordering::SeqCst),
                Err(error) if !self.is_known.load(Ordering::SeqCst) => return Err(error),
                Err(error) => tracing::debug!(%error, "whether there are tokens now is not known"),
            }
            self.is_known.store(true, Ordering::SeqCst);
            *asked = Some(self.env.now());
        }
        Ok(self.exist.load(Ordering::SeqCst))
    }

    /// The grant with this id, as it was not long ago.
    pub(crate) async fn grant(&self, id: &str) -> sawmill::Result<Option<Grant>> {
        if let Some(grant) = self.remembered(id) {
            return Ok(grant);
        }
        let grant = self.mill.grant(id).await?;
        let mut seen = locked(&self.seen);
        if seen.len() >= MOST_REMEMBERED {
            // Who makes up tokens has nobody else's forgotten.
            seen.retain(|_, (_, grant)| grant.is_some());
        }
        if seen.len() >= MOST_REMEMBERED {
            seen.clear();
        }
        seen.insert(id.to_owned(), (self.env.now(), grant.clone()));
        Ok(grant)
    }

    fn remembered(&self, id: &str) -> Option<Option<Grant>> {
        let seen = locked(&self.seen);
        let (when, grant) = seen.get(id)?;
        (self.env.now().since(*when) < BELIEVED).then(|| grant.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn q21_a_token_opens_what_it_was_made_for_and_nothing_of_it_is_kept() {
        let (mill, env) = (Sawmill::open("memory:").await.unwrap(), Env::system());
        let (token, grant) = create(&mill, &env, None, Access::Read, "x").await.unwrap();
        let tokens = Tokens::new(mill.clone(), env.clone());
        assert_eq!(tokens.check(&token).await.unwrap(), Some(grant.clone()));
        let (id, secret) = parts(&token).unwrap();
        assert_eq!((id, secret.len()), (grant.id.as_str(), 43));
        assert!(!format!("{:?}", mill.grants().await.unwrap()).contains(secret));
        let flipped = if secret.starts_with('A') { "B" } else { "A" };
        for wrong in [
            String::new(),
            "sawmill_".to_owned(),
            grant.id.clone(),
            format!("sawmill_{id}_"),
            format!("sawmill_{id}_{}", grant.digest),
            format!("sawmill_{id}_{flipped}{}", &secret[1..]),
            format!("sawmill_{id}_{secret}x"),
            format!("sawmill_0000000000_{secret}"),
        ] {
            assert_eq!(tokens.check(&wrong).await.unwrap(), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn q21_two_tokens_differ() {
        let (mill, env) = (Sawmill::open("memory:").await.unwrap(), Env::system());
        let (one, _) = create(&mill, &env, None, Access::Read, "").await.unwrap();
        let (two, _) = create(&mill, &env, None, Access::Read, "").await.unwrap();
        assert!(one != two && csrf(&one) != csrf(&two) && !csrf(&one).contains(&one));
    }
}
