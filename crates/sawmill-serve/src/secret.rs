//! Access keys: the credentials that clients send, and the digests that the store keeps.
//!
//! A credential is `sawmill_ID_SECRET`. The id finds the access key. The secret has 256 random bits, so a
//! plain SHA-256 is a sufficient digest. Digests are compared in constant time, even when there is no such
//! key.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sawmill::admin::{Access, AccessKey};
use sawmill::engine::model::TopicName;
use sawmill::engine::runtime::{Env, Moment};
use sawmill::{ErrorKind, Sawmill};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::locked;

const PREFIX: &str = "sawmill_";
/// How long a cached access key is used without asking the store. A revoked key may still work for this long.
const CACHE_TIME: Duration = Duration::from_secs(2);
/// The maximum number of cached access keys.
const MAX_CACHED: usize = 10_000;

/// Creates an access key and stores its digest. Returns the credential, which cannot be recovered later, and
/// the key.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = sawmill::Sawmill::open("memory:").await?;
/// use sawmill::admin::Access;
/// use sawmill::engine::runtime::Env;
/// use sawmill_serve::secret;
///
/// let (credential, access_key) =
///     secret::create(&mill, &Env::system(), Some("emails".parse()?), Access::Write, "shop").await?;
/// assert!(credential.starts_with("sawmill_") && !access_key.digest.contains(&credential));
/// # Ok(()) }
/// ```
pub async fn create(
    mill: &Sawmill,
    env: &Env,
    topic: Option<TopicName>,
    access: Access,
    note: &str,
) -> sawmill::Result<(String, AccessKey)> {
    let id = format!("{:010x}", env.rng().next_u64() >> 24);
    let secret: Vec<u8> = (0..4).flat_map(|_| env.rng().next_u64().to_be_bytes()).collect();
    let secret = BASE64_URL_SAFE_NO_PAD.encode(secret);
    // The word is part of every digest that a store keeps.
    let digest = digest("token", &id, &secret);
    let access_key = AccessKey { digest, topic, access, created: env.wall(), note: note.to_owned(), id };
    mill.admin().add_access_key(&access_key).await?;
    Ok((format!("{PREFIX}{}_{secret}", access_key.id), access_key))
}

/// Returns the value of the CSRF header that belongs to a cookie with this credential.
pub(crate) fn csrf(credential: &str) -> String {
    digest("csrf", "", credential)
}

/// Compares two texts in constant time.
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

/// Returns true if this is the secret of the access key. Takes the same time if there is no key.
fn is_of(access_key: Option<&AccessKey>, id: &str, secret: &str) -> bool {
    // No secret has this digest, and it has the usual length.
    let nothing = format!("sha256:{:064}", 0);
    let is_same =
        same(&digest("token", id, secret), access_key.map_or(&nothing, |access_key| &access_key.digest));
    is_same && access_key.is_some()
}

/// Splits a credential into id and secret; `None` if it is malformed.
fn parts(credential: &str) -> Option<(&str, &str)> {
    credential
        .strip_prefix(PREFIX)?
        .split_once('_')
        .filter(|(id, secret)| id.len() <= 40 && secret.len() <= 100)
}

/// A cache of the access keys in the store.
pub(crate) struct AccessKeys {
    mill: Sawmill,
    env: Env,
    cache: Mutex<BTreeMap<String, (Moment, Option<AccessKey>)>>,
    /// When the store was last asked whether access keys exist.
    asked: tokio::sync::Mutex<Option<Moment>>,
    /// The store has answered at least once whether access keys exist.
    is_known: AtomicBool,
    exist: AtomicBool,
}

impl AccessKeys {
    pub(crate) fn new(mill: Sawmill, env: Env) -> Self {
        let (cache, asked, is_known, exist) = Default::default();
        Self { mill, env, cache, asked, is_known, exist }
    }

    /// Returns the access key of a credential, or `None` if it is invalid or was revoked.
    pub(crate) async fn check(&self, credential: &str) -> sawmill::Result<Option<AccessKey>> {
        let Some((id, secret)) = parts(credential) else { return Ok(None) };
        let access_key = self.access_key(id).await?;
        Ok(access_key.as_ref().filter(|_| is_of(access_key.as_ref(), id, secret)).cloned())
    }

    /// Returns true if this credential was valid when the store was last asked, however long ago. Its sender
    /// is not guessing.
    pub(crate) fn was_valid(&self, credential: &str) -> bool {
        let Some((id, secret)) = parts(credential) else { return false };
        let access_key = locked(&self.cache).get(id).and_then(|(_, access_key)| access_key.clone());
        is_of(access_key.as_ref(), id, secret)
    }

    /// Returns true if access keys exist or have existed: a server that was closed once stays closed. The
    /// store is asked at intervals. Nobody is let in before it has answered once that there are none.
    pub(crate) async fn exist(&self) -> sawmill::Result<bool> {
        if self.exist.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // One caller asks for all. Once the first answer is known, the others do not wait.
        let mut asked = match self.asked.try_lock() {
            Ok(asked) => asked,
            Err(_) if self.is_known.load(Ordering::SeqCst) => return Ok(self.exist.load(Ordering::SeqCst)),
            Err(_) => self.asked.lock().await,
        };
        if asked.is_none_or(|asked| self.env.now().since(asked) >= CACHE_TIME) {
            match self.mill.admin().access_keys().await {
                Ok(access_keys) => self.exist.store(!access_keys.is_empty(), Ordering::SeqCst),
                // There are access keys that this version cannot read.
                Err(error) if error.kind() == ErrorKind::Corrupt => self.exist.store(true, Ordering::SeqCst),
                Err(error) if !self.is_known.load(Ordering::SeqCst) => return Err(error),
                Err(error) => tracing::debug!(%error, "whether there are access keys now is not known"),
            }
            self.is_known.store(true, Ordering::SeqCst);
            *asked = Some(self.env.now());
        }
        Ok(self.exist.load(Ordering::SeqCst))
    }

    /// Returns the access key with this id, possibly from the cache.
    pub(crate) async fn access_key(&self, id: &str) -> sawmill::Result<Option<AccessKey>> {
        if let Some(access_key) = self.cached(id) {
            return Ok(access_key);
        }
        let access_key = self.mill.admin().access_key(id).await?;
        let mut cache = locked(&self.cache);
        if cache.len() >= MAX_CACHED {
            // Unknown ids are dropped first, so that guessing does not evict valid access keys.
            cache.retain(|_, (_, access_key)| access_key.is_some());
        }
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(id.to_owned(), (self.env.now(), access_key.clone()));
        Ok(access_key)
    }

    fn cached(&self, id: &str) -> Option<Option<AccessKey>> {
        let cache = locked(&self.cache);
        let (when, access_key) = cache.get(id)?;
        (self.env.now().since(*when) < CACHE_TIME).then(|| access_key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn q21_a_token_opens_what_it_was_made_for_and_nothing_of_it_is_kept() {
        let (mill, env) = (Sawmill::open("memory:").await.unwrap(), Env::system());
        let (credential, access_key) = create(&mill, &env, None, Access::Read, "x").await.unwrap();
        let access_keys = AccessKeys::new(mill.clone(), env.clone());
        assert_eq!(access_keys.check(&credential).await.unwrap(), Some(access_key.clone()));
        let (id, secret) = parts(&credential).unwrap();
        assert_eq!((id, secret.len()), (access_key.id.as_str(), 43));
        assert!(!format!("{:?}", mill.admin().access_keys().await.unwrap()).contains(secret));
        let flipped = if secret.starts_with('A') { "B" } else { "A" };
        for wrong in [
            String::new(),
            "sawmill_".to_owned(),
            access_key.id.clone(),
            format!("sawmill_{id}_"),
            format!("sawmill_{id}_{}", access_key.digest),
            format!("sawmill_{id}_{flipped}{}", &secret[1..]),
            format!("sawmill_{id}_{secret}x"),
            format!("sawmill_0000000000_{secret}"),
        ] {
            assert_eq!(access_keys.check(&wrong).await.unwrap(), None, "{wrong}");
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
