//! Checks beside a server's work.

use segue_core::nouns::Role;

use std::time::Duration;

use crate::harness::{Server, chunk, done, http, noise, store};

/// Whoever takes this long hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A check that would take a day ends with its server, says so, and lets go of the directory;
/// meanwhile there is no second one.
#[tokio::test]
async fn a_server_that_stops_ends_its_check() {
    let mut server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let (first, second) = (noise(50_000, 1), noise(50_000, 2));
    tin.upload(&[&first, &second]).await.unwrap();
    let (ino, version) = tin.create("f").await;
    let pieces = vec![chunk(0, &first), chunk(50_000, &second)];
    done(&tin.apply(store(ino, version, 100_000, pieces)).await, ino);

    let (data, refusal) = (server.data(), "another check is running");
    let slow = tokio::spawn(async move {
        let request = r#"{"volume":"home","quick":false,"rate_bytes":1}"#;
        loop {
            let answer = http(&data, "POST", "/v1/check", request).await;
            if !answer.contains(refusal) {
                return answer;
            }
        }
    });
    // Who is refused knows that the slow one has begun.
    let quick = r#"{"volume":null,"quick":true,"rate_bytes":null}"#;
    let refused = async {
        while !http(&server.data(), "POST", "/v1/check", quick).await.contains(refusal) {}
    };
    tokio::time::timeout(HANGS, refused).await.unwrap();
    server.stop().await;
    let answer = tokio::time::timeout(HANGS, slow).await.unwrap().unwrap();
    assert!(answer.contains(r#""line":"failed""#) && !answer.contains("checked"), "{answer}");
    server.begin().await;
    let answer = http(&server.data(), "POST", "/v1/check", quick).await;
    assert!(answer.contains(r#""ok":true"#), "{answer}");
}
