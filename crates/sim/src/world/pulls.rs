//! Opens of files that other hosts have changed: the server asks these hosts first.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::nouns::{ClientId, Ino};
use segue_core::promise::SessionId;
use segue_core::sharing::{GRACE, OpenWait};
use segue_core::wire::{Opened, Reply, Request};

use super::links::Way;
use super::{Event, Host, RECONNECT, World};
use crate::Violation;
use crate::client::Mount;
use crate::plan::Bug;
use crate::server::{Holder, Origin, Server};

/// An open that is not answered.
#[derive(Debug)]
pub(super) struct Pulling {
    from: Origin,
    call: u64,
    ino: Ino,
    wait: OpenWait,
    /// The sessions that were asked.
    asked: BTreeMap<ClientId, SessionId>,
    /// What hosts had to send when it came.
    owed: Vec<Owed>,
}

/// A change that a host had logged of a file, and had said so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    host: usize,
    seq: u64,
}

impl World {
    /// Asks the hosts that have changed `ino`. False if there is none.
    pub(super) fn begin_pulls(
        &mut self,
        from: Origin,
        call: u64,
        ino: Ino,
    ) -> Result<bool, Violation> {
        let wait = self.server.open_wait(from, ino, self.now);
        let wait = wait.filter(|(wait, _)| !wait.is_over() || wait.is_hidden());
        let Some((wait, writers)) = wait else { return Ok(false) };
        let asked = writers.iter().map(|writer| (writer.client, writer.session)).collect();
        let owed = self.owed(from.client, ino);
        self.last_pull += 1;
        let number = self.last_pull;
        self.pulls.insert(number, Pulling { from, call, ino, wait, asked, owed });
        for to in writers {
            self.ask_for_pull(to, number)?;
        }
        self.after(GRACE, Event::PullOver(number));
        self.end_pull_if_over(number)?;
        Ok(true)
    }

    /// What connected hosts have of `ino`, and have said so.
    pub(super) fn owed(&self, reader: ClientId, ino: Ino) -> Vec<Owed> {
        let of = |host: usize| match &self.hosts[host] {
            Host::Up(apps) => apps.mount.core.queue().all_of(ino),
            Host::Down(..) => BTreeSet::new(),
        };
        let hosts = self.server.said(reader, ino, self.now).into_iter();
        hosts.flat_map(|host| of(host).into_iter().map(move |seq| Owed { host, seq })).collect()
    }

    /// An open of `ino` is answered: whatever hosts had to send when it came must be there.
    pub(super) fn check_paid(&self, ino: Ino, owed: &[Owed]) -> Result<(), Violation> {
        let is_pending = |owed: &&Owed| match &self.hosts[owed.host] {
            Host::Up(apps) => apps.mount.core.queue().stage(owed.seq).is_some(),
            Host::Down(..) => false,
        };
        match owed.iter().find(is_pending) {
            Some(Owed { host, seq }) => Err(Violation(format!(
                "{ino} is opened as if all of it were there, and client {host} has not sent {seq}"
            ))),
            None => Ok(()),
        }
    }

    /// Asks a host, again and again until its connection is given up.
    pub(super) fn ask_for_pull(&mut self, to: Holder, number: u64) -> Result<(), Violation> {
        if !self.pulls.contains_key(&number) {
            return Ok(());
        }
        if !self.server.is_session(to.client, to.session, self.now) {
            return self.pulled(to.client, number, false);
        }
        match self.travel(to.host, Way::Down, 0) {
            Some(delay) => self.after(delay, Event::Pull(to, number)),
            None => self.after(RECONNECT, Event::AskForPull(to, number)),
        }
        Ok(())
    }

    /// A host hears that another one opens a file.
    pub(super) fn hear_pull(&mut self, to: Holder, number: u64) -> Result<(), Violation> {
        let Some(ino) = self.pulls.get(&number).map(|pull| pull.ino) else { return Ok(()) };
        self.say(&format!("client {} hears that {ino} is opened: {number}", to.host));
        self.with(to.host, |apps| apps.mount.pull(ino, number))?;
        Ok(())
    }

    /// Sends the answers of a host whose changes are sent.
    pub(super) fn answer_pulls(&mut self, host: usize, client: ClientId, pulled: Vec<(u64, bool)>) {
        for (number, is_sent) in pulled {
            match self.travel(host, Way::Up, 0) {
                Some(delay) => self.after(delay, Event::Pulled(client, number, is_sent)),
                None => self.say("the answer to a pull is lost"),
            }
        }
    }

    /// A host has sent what it had, or will not.
    pub(super) fn pulled(
        &mut self,
        client: ClientId,
        number: u64,
        is_sent: bool,
    ) -> Result<(), Violation> {
        if let Some(pull) = self.pulls.get_mut(&number) {
            // What was said over another connection is not heard.
            let session = pull.asked.get(&client);
            let is_here = session.is_some_and(|id| self.server.is_session(client, *id, self.now));
            pull.wait.answered(client, is_sent && is_here);
        }
        self.end_pull_if_over(number)
    }

    /// Nobody waits any longer.
    pub(super) fn end_pull(&mut self, number: u64) -> Result<(), Violation> {
        if let Some(pull) = self.pulls.get_mut(&number) {
            let believes = self.options.bug == Some(Bug::ServerOpensUnsent);
            for client in pull.wait.left().collect::<Vec<_>>() {
                pull.wait.answered(client, believes);
            }
        }
        self.end_pull_if_over(number)
    }

    fn end_pull_if_over(&mut self, number: u64) -> Result<(), Violation> {
        if self.pulls.get(&number).is_none_or(|pull| !pull.wait.is_over()) {
            return Ok(());
        }
        let Some(pull) = self.pulls.remove(&number) else { return Ok(()) };
        let Pulling { from, call, ino, wait, owed, .. } = pull;
        let is_hidden = wait.is_hidden();
        if !is_hidden {
            self.check_paid(ino, &owed)?;
        }
        let Some((reply, body)) = self.server.serve(from, (&Request::Open(ino), &[]), self.now)?
        else {
            return Ok(());
        };
        let reply = match reply {
            Reply::Opened(opened) => {
                let is_hidden = wait.hides(opened.found.node.attr.size);
                Reply::Opened(Opened { is_hidden, ..opened })
            }
            other => other,
        };
        self.summary.pulls += 1;
        self.say(&format!("server answers {call} of client {}: {reply:?}", from.host));
        let answer = Box::new((reply, body));
        if let Some(delay) = self.travel(from.host, Way::Down, 0) {
            self.after(delay, Event::Reply { client: from.host, call, answer });
        }
        Ok(())
    }
}

/// Whoever relies on a file that another host has said to have changed knows that, or is being
/// told.
pub(super) fn check_marks(
    mount: &Mount,
    server: &Server,
    is_on_its_way: impl Fn(Ino) -> bool,
) -> Result<(), Violation> {
    let tree = mount.core.tree();
    let relies = |ino: &Ino| {
        let is_believed = tree.is_promised(*ino, mount.now) && !tree.is_pending(*ino);
        is_believed && !tree.is_marked(*ino) && !is_on_its_way(*ino)
    };
    let client = mount.disk.kept.client();
    if let Some(ino) = server.said_to(client).find(relies) {
        return Err(Violation(format!(
            "{ino} is relied on as if all of it were there, and another host has said otherwise"
        )));
    }
    Ok(())
}

/// What a host shows of a file that another one has announced, some host says still, or it is being
/// told.
pub(super) fn check_announced(
    mount: &Mount,
    server: &Server,
    is_on_its_way: impl Fn(Ino) -> bool,
) -> Result<(), Violation> {
    let (tree, client) = (mount.core.tree(), mount.disk.kept.client());
    let is_old = |ino: &Ino| {
        let is_believed = tree.is_promised(*ino, mount.now) && !is_on_its_way(*ino);
        let announced = tree.announced(*ino).filter(|_| is_believed);
        announced.is_some_and(|announced| !server.is_announced(client, *ino, announced))
    };
    match tree.known_inodes().find(is_old) {
        Some(ino) => Err(Violation(format!("{ino} is shown as no other host has it any more"))),
        None => Ok(()),
    }
}
