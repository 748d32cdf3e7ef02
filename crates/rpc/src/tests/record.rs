use std::path::Path;

use segue_core::nouns::Class;

use super::*;

/// The value of a field of a line, as it stands there.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next()
}

fn times(line: &str, names: &[&str]) -> Vec<f64> {
    names.iter().filter_map(|name| field(line, name)).map(|time| time.parse().unwrap()).collect()
}

/// The lines once there are so many of them.
async fn lines(path: &Path, count: usize) -> Vec<String> {
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each call is noted at both sides under the same name, with how it ended there, and its times
/// go forward.
#[tokio::test]
async fn calls_are_noted_at_both_sides() {
    let world = World::new();
    let (client, server, _listener) = world.pair().await;
    let directory = tempfile::tempdir().unwrap();
    let (asking, answering) = (directory.path().join("asking"), directory.path().join("answering"));
    client.record(&Recorder::open(&asking).unwrap());
    server.record(&Recorder::open(&answering).unwrap());
    tokio::spawn(echo(server));
    let body = vec![7; 300_000];
    let whole = client.call_at(Class::StoreData, &getattr(1), body.clone().into()).await.unwrap();
    whole.body.collect(body.len()).await.unwrap();
    client.call(&getattr(2), Body::Empty).await.unwrap();
    drop(client.call_at(Class::Fetch, &getattr(3), vec![7; 30_000_000].into()).await.unwrap());

    let (asking, answering) = (lines(&asking, 3).await, lines(&answering, 3).await);
    let ends: Vec<_> = asking
        .iter()
        .map(|line| (field(line, "class").unwrap(), field(line, "end").unwrap()))
        .collect();
    let expected =
        [("\"store-data\"", "\"ok\""), ("\"validate\"", "\"ok\""), ("\"fetch\"", "\"cancelled\"")];
    assert_eq!(ends, expected);
    for line in &asking {
        let other = answering.iter().find(|other| field(other, "call") == field(line, "call"));
        let other = other.unwrap_or_else(|| panic!("{line} is not in {answering:?}"));
        assert_eq!(field(other, "connection"), field(line, "connection"));
        assert_eq!(
            (field(line, "request"), field(other, "side")),
            (Some("\"Getattr\""), Some("\"answering\""))
        );
    }
    // The reply to the first began before its request had ended.
    for line in &asking[..2] {
        let request = times(line, &["queued", "sent_first", "sent_last"]);
        let reply = times(line, &["sent_first", "reply_first", "reply_last"]);
        assert!(request.len() == 3 && request.is_sorted(), "{line}");
        assert!(reply.len() == 3 && reply.is_sorted(), "{line}");
    }
    let ok = answering.iter().filter(|line| field(line, "end") == Some("\"ok\""));
    for line in ok {
        let times = times(line, &["received", "queued", "sent_first", "sent_last"]);
        assert!(times.len() == 4 && times.is_sorted(), "{line}");
    }
}
