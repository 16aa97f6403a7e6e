use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Status and body of a GET; `None` if nobody answers.
pub(crate) async fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        // The older version: an answer without chunks, that ends with the connection.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), ask).await.ok()?
}

/// The result of an instant query; `None` while the server does not answer.
pub(crate) async fn query(server: &str, expression: &str) -> Option<Vec<Value>> {
    let (_, body) = get(server, &format!("/api/v1/query?query={}", encoded(expression))).await?;
    let answer: Value = serde_json::from_str(&body).ok()?;
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    match &answer["data"]["result"] {
        Value::Array(found) => Some(found.clone()),
        other => panic!("{expression}: {other}"),
    }
}

/// The names of all alerts that fire now.
pub(crate) async fn firing(server: &str) -> Vec<String> {
    let Some((_, body)) = get(server, "/api/v1/alerts").await else { return Vec::new() };
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
    alerts
        .iter()
        .filter(|alert| alert["state"] == "firing")
        .filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned))
        .collect()
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut done, byte| {
        if byte.is_ascii_alphanumeric() {
            done.push(char::from(byte));
        } else {
            done.push_str(&format!("%{byte:02X}"));
        }
        done
    })
}
