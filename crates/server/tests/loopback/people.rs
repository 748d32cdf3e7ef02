//! Who gets in, and who does not any more.

use segue_core::nouns::{Ino, Role};
use segue_core::refusal::Refusal;
use segue_core::wire::{Enrol, Hello, Reply, Request};
use segue_rpc::identity::{Identities, KeyRequest, MountUrl};
use segue_rpc::{Body, CallError, EnrolError, Peer, Target, dial};
use segue_server::ServeError;
use segue_server::admin::{AdminReply, AdminRequest, FailReason, execute_offline};
use std::time::Duration;

use crate::harness::{Server, call, http, shut_out};

const PATIENCE: Duration = Duration::from_secs(60);

async fn enrol(server: &Server, url: &MountUrl) -> Result<String, String> {
    let identities = Identities::at(server.dir.path().join("identities"));
    match segue_rpc::enrol(url, &identities, "tin", PATIENCE).await {
        Ok(enrolled) => Ok(enrolled.volume),
        Err(EnrolError::Refused(words)) => Err(words),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_invite_works_once_and_until_it_expires() {
    let server = Server::start().await;
    let url = server.invite(Role::Writer, 3600).await;
    assert_eq!(enrol(&server, &url).await, Ok("home".to_owned()));
    let words = enrol(&server, &url).await.unwrap_err();
    assert!(words.contains("has been used") && words.contains("segue invite"), "{words}");

    let mut text = server.invite(Role::Writer, 3600).await.to_string();
    let code = text.find("invite=").unwrap() + 7;
    text.replace_range(code..code + 4, "0000");
    let words = enrol(&server, &text.parse().unwrap()).await.unwrap_err();
    assert!(words.contains("does not know this invite"), "{words}");
}

/// An enrolment for a mistyped volume had used the invite up.
/// Proves S17.14.
#[tokio::test]
async fn a_mistyped_volume_uses_up_no_invite() {
    let server = Server::start().await;
    server.admin(&AdminRequest::VolumeCreate { name: "work".to_owned() }).await;
    let url = server.invite(Role::Writer, 3600).await;
    for other in ["hom", "work"] {
        let mistyped: MountUrl =
            url.to_string().replace("/home?", &format!("/{other}?")).parse().unwrap();
        assert_eq!(mistyped.volume(), other);
        let words = enrol(&server, &mistyped).await.unwrap_err();
        assert!(words.contains("'home'") && words.contains("still valid"), "{words}");
    }
    assert_eq!(enrol(&server, &url).await, Ok("home".to_owned()));
}

/// The role of an enrolment is kept beside the key, with which a later session compares it.
#[tokio::test]
async fn an_enrolment_keeps_the_role() {
    let server = Server::start().await;
    for (name, role) in [("tin", Role::Reader), ("zinc", Role::Writer), ("lead", Role::Host)] {
        assert_eq!(server.host(name, role).await.identity.role(), Some(role));
    }
}

#[tokio::test]
async fn an_answer_that_got_lost_comes_again() {
    let server = Server::start().await;
    let url = server.invite(Role::Host, 3600).await;
    let invite = url.invite().unwrap();
    let key = KeyRequest::generate().unwrap();
    let peer = dial(&Target::new(&url, &invite.authority), None, PATIENCE).await.unwrap();
    let (code, request_der) = (invite.code.clone(), key.request_der);
    let request = Request::Enrol(Enrol {
        code,
        request_der,
        host: "tin".to_owned(),
        volume: "home".to_owned(),
    });
    let first = call(&peer, &request).await;
    assert!(matches!(&first, Reply::Enrolled(enrolled) if enrolled.role == Role::Host));
    assert_eq!(call(&peer, &request).await, first);
}

#[tokio::test]
async fn strangers_may_do_nothing_else() {
    let server = Server::start().await;
    let url = server.invite(Role::Writer, 3600).await;
    let target = Target::new(&url, &url.invite().unwrap().authority);
    let peer = dial(&target, None, PATIENCE).await.unwrap();
    match call(&peer, &Request::Statfs(Ino::ROOT)).await {
        Reply::Refused(refused) => assert_eq!(refused.refusal, Refusal::NotPermitted),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_revoked_identity_is_out_at_once_and_stays_out() {
    let mut server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    let client = host.client(1).await;
    let fingerprint = host.identity.fingerprint();
    let id = fingerprint[..16].to_owned();
    let reply = server.admin(&AdminRequest::IdentityRevoke { id: id.clone() }).await;
    assert_eq!(reply, AdminReply::Revoked { id, fingerprint });
    let words = shut_out(&client.peer).await;
    assert!(words.contains("revoked"), "{words}");
    for _ in 0..2 {
        let words = shut_out(&host.dial().await).await;
        assert!(words.contains("revoked"), "{words}");
        server.restart().await;
    }
    match server.admin(&AdminRequest::IdentityList).await {
        AdminReply::Identities { identities } => {
            assert_eq!((identities.len(), identities[0].host.as_str()), (1, "tin"));
            assert!(identities[0].revoked.is_some());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cache_belongs_to_one_identity_and_has_one_session() {
    let server = Server::start().await;
    let tin = server.host("tin", Role::Writer).await;
    let zinc = server.host("zinc", Role::Writer).await;
    let first = tin.client(1).await;
    match call(&zinc.dial().await, &Request::Hello(zinc.hello(1))).await {
        Reply::Refused(refused) => {
            assert_eq!(refused.refusal, Refusal::NotPermitted);
            assert!(refused.words.contains("another identity"), "{}", refused.words);
        }
        other => panic!("{other:?}"),
    }
    let second = tin.client(1).await;
    assert_eq!(second.welcome.grants, first.welcome.grants);
    let words = shut_out(&first.peer).await;
    assert!(words.contains("connected again"), "{words}");
}

#[tokio::test]
async fn a_cache_outlives_an_identity_that_was_revoked() {
    let server = Server::start().await;
    let old = server.host("tin", Role::Writer).await;
    let grants = old.client(1).await.welcome.grants;
    let id = old.identity.fingerprint();
    let reply = server.admin(&AdminRequest::IdentityRevoke { id }).await;
    assert!(matches!(reply, AdminReply::Revoked { .. }));
    let new = server.host("tin-again", Role::Writer).await;
    assert_eq!(new.client(1).await.welcome.grants, grants);
}

/// A hello that was refused had made the cache its own, and the host that it belongs to was
/// refused from then on.
#[tokio::test]
async fn who_is_refused_takes_no_cache_over() {
    let server = Server::start().await;
    let old = server.host("tin", Role::Writer).await;
    let later = Hello { incarnation: 2, ..old.hello(1) };
    let reply = call(&old.dial().await, &Request::Hello(later.clone())).await;
    assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
    let id = old.identity.fingerprint();
    server.admin(&AdminRequest::IdentityRevoke { id }).await;
    let zinc = server.host("zinc", Role::Writer).await;
    match call(&zinc.dial().await, &Request::Hello(zinc.hello(1))).await {
        Reply::Refused(refused) => assert_eq!(refused.refusal, Refusal::NotPermitted),
        other => panic!("{other:?}"),
    }
    let new = server.host("tin-again", Role::Writer).await;
    let reply = call(&new.dial().await, &Request::Hello(later)).await;
    assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
}

/// A host said hello without end on one connection, and each time the server kept something.
#[tokio::test]
async fn three_refused_hellos_end_a_connection() {
    let server = Server::start().await;
    let tin = server.host("tin", Role::Reader).await;
    let refused = |peer: Peer| {
        let hello = Hello { volume: "play".to_owned(), ..tin.hello(1) };
        async move {
            let answer = peer.call(&Request::Hello(hello), Body::Empty).await;
            answer.map(|answer| answer.reply)
        }
    };
    let is_refused = |reply: &Result<Reply, CallError>| match reply {
        Ok(Reply::Refused(refused)) => refused.refusal == Refusal::NotFound,
        _ => false,
    };
    let peer = tin.dial().await;
    for _ in 0..2 {
        let reply = refused(peer.clone()).await;
        assert!(is_refused(&reply), "{reply:?}");
    }
    // The end may overtake the answer.
    refused(peer.clone()).await.ok();
    let words = shut_out(&peer).await;
    assert!(words.contains("too many hellos"), "{words}");

    // Those that do not wait for answers have no more of them.
    let peer = tin.dial().await;
    let hellos: Vec<_> = (0..100).map(|_| tokio::spawn(refused(peer.clone()))).collect();
    let mut answered = 0;
    for hello in hellos {
        answered += usize::from(is_refused(&hello.await.unwrap()));
    }
    assert!(answered <= 3, "{answered} hellos were looked at");
    let words = shut_out(&peer).await;
    assert!(words.contains("too many hellos"), "{words}");

    // A host that is told twice to say it otherwise gets in.
    let peer = tin.dial().await;
    for _ in 0..2 {
        assert!(is_refused(&refused(peer.clone()).await));
    }
    let reply = call(&peer, &Request::Hello(tin.hello(1))).await;
    assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
}

#[tokio::test]
async fn an_identity_is_for_one_volume() {
    let server = Server::start().await;
    let made = server.admin(&AdminRequest::VolumeCreate { name: "work".to_owned() }).await;
    assert!(matches!(made, AdminReply::Volume(volume) if volume.name == "work" && volume.id == 2));
    let tin = server.host("tin", Role::Writer).await;
    for (volume, refusal) in [("work", Refusal::NotPermitted), ("play", Refusal::NotFound)] {
        let mut hello = tin.hello(1);
        hello.volume = volume.to_owned();
        match call(&tin.dial().await, &Request::Hello(hello)).await {
            Reply::Refused(refused) => assert_eq!(refused.refusal, refusal),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn commands_work_with_the_server_down() {
    let mut server = Server::start().await;
    let data = server.data();
    let path = data.clone();
    let busy = tokio::task::spawn_blocking(move || execute_offline(&path, AdminRequest::Info));
    let pid = Some(std::process::id());
    assert!(
        matches!(busy.await.unwrap(), Err(ServeError::InUse { pid: found, .. }) if found == pid)
    );
    server.stop().await;
    let address = server.address;
    let offline = move |request| execute_offline(&data, request).unwrap();
    let replies = tokio::task::spawn_blocking(move || {
        let invite = |ttl_seconds| AdminRequest::Invite {
            volume: "home".to_owned(),
            role: Role::Writer,
            ttl_seconds,
            host: Some("example.org".to_owned()),
            no_root_squash: false,
        };
        let unknown = AdminRequest::VolumeShow { name: "play".to_owned() };
        [invite(60), invite(0), unknown, AdminRequest::VolumeList].map(offline)
    });
    let [invite, bad, unknown, list] = replies.await.unwrap();
    let AdminReply::Invite { url } = invite else { panic!("{invite:?}") };
    let start = format!("segue://example.org:{}/home?invite=", address.port());
    assert!(url.starts_with(&start), "{url}");
    assert!(matches!(bad, AdminReply::Failed { reason: FailReason::Invalid, .. }));
    assert!(matches!(unknown, AdminReply::Failed { reason: FailReason::NotFound, .. }));
    assert!(matches!(list, AdminReply::Volumes { volumes } if volumes[0].name == "home"));
}

#[tokio::test]
async fn the_control_socket_stops_the_server() {
    let server = Server::start().await;
    let tin = server.client("tin", Role::Writer).await;
    http(&server.data(), "POST", "/v1/shutdown", "").await;
    let words = shut_out(&tin.peer).await;
    assert!(words.contains("stopping"), "{words}");
}
