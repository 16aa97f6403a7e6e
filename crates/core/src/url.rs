/// A broker's URL as people may see it: `***` in place of every secret, wherever one can stand.
///
/// That is the password before the `@`, and the values of `password`, `sslpassword`, `token`, and of `listen`, which is a
/// URL itself. Works on URLs that are malformed too, since those are shown in errors, and hides rather too much than too
/// little.
///
/// ```
/// # use celeriac_core::without_password;
/// assert_eq!(without_password("postgres://app:s3cret@host/db"), "postgres://app:***@host/db");
/// ```
pub fn without_password(url: &str) -> String {
    let mut shown = url.to_owned();
    let authority = shown.find("://").map_or(0, |place| place + 3);
    // A password may itself hold an `@`, a `/` or a `?` that should have been escaped: the last `@` before the parameters
    // counts.
    let end = parameters(&shown, authority);
    if let Some(at) = shown[authority..end].rfind('@').map(|place| authority + place)
        && let Some(colon) = shown[authority..at].find(':').map(|place| authority + place)
        && !shown[authority..colon].contains(['/', '?'])
    {
        shown.replace_range(colon + 1..at, HIDDEN);
    }
    for key in ["password=", "token=", "listen="] {
        let mut from = 0;
        while let Some(place) = shown[from..].to_ascii_lowercase().find(key) {
            let start = from + place + key.len();
            let value = &shown[start..];
            let length = match value.find(['&', ' ']) {
                // A quoted value may hold anything.
                Some(length) if !value.starts_with('\'') => length,
                _ => value.len(),
            };
            from = start;
            if &value[..length] != "off" {
                shown.replace_range(start..start + length, HIDDEN);
            }
        }
    }
    shown
}

/// Where the parameters begin: at a `?` with `key=` behind it; one in the middle of a password is none.
fn parameters(url: &str, from: usize) -> usize {
    let is_key = |text: &str| {
        text.split_once('=').is_some_and(|(key, _)| {
            !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    };
    url[from..]
        .match_indices('?')
        .find(|(place, _)| is_key(&url[from + place + 1..]))
        .map_or(url.len(), |(place, _)| from + place)
}

const HIDDEN: &str = "***";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (url, shown) in [
            ("sqlite:jobs.db", "sqlite:jobs.db"),
            ("postgres://host/db", "postgres://host/db"),
            ("postgres://me@host:5432/db", "postgres://me@host:5432/db"),
            ("postgres://me:s3cret@host/db", "postgres://me:***@host/db"),
            ("postgres://me:s3cret@host/db?schema=a&x=a@b", "postgres://me:***@host/db?schema=a&x=a@b"),
            ("postgres://host:5432/db?application_name=a@b", "postgres://host:5432/db?application_name=a@b"),
            ("postgres://me:s3@cr@et@host/db?x=1", "postgres://me:***@host/db?x=1"),
            ("postgres://me:s3?cret@host/db", "postgres://me:***@host/db"),
            ("postgres://me:s3/cret@host/db", "postgres://me:***@host/db"),
            ("postgres://host/db?user=me&password=s3cret&x=1", "postgres://host/db?user=me&password=***&x=1"),
            ("postgres://host/db?PASSWORD=s3cret", "postgres://host/db?PASSWORD=***"),
            ("postgres://host/db?sslpassword=s3cret", "postgres://host/db?sslpassword=***"),
            (
                "postgres://me@h/db?listen=postgres://me:s3cret@h/db&pooler=transaction",
                "postgres://me@h/db?listen=***&pooler=transaction",
            ),
            ("postgres://me@h/db?listen=off", "postgres://me@h/db?listen=off"),
            ("postgres:host=db password='s3 cret' user=me", "postgres:host=db password=***"),
            ("postgres:host=db password=s3cret user=me", "postgres:host=db password=*** user=me"),
            ("redis://:s3cret@host", "redis://:***@host"),
            ("me:s3cret@host", "me:***@host"),
            ("", ""),
        ] {
            assert_eq!(without_password(url), shown, "{url}");
        }
    }
}
