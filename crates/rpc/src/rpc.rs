//! The class of a call, which may become more urgent while it is under way.
//!
//! ```text
//!   raise ──▶ the class ──▶ the unsent rest of the request moves up in our scheduler
//!                      └──▶ RAISE, at the top class ──▶ the other side's, and there of the reply
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use segue_core::nouns::Class;
use segue_core::sched::MessageId;
use tokio::sync::{mpsc, watch};

use crate::close::CallError;
use crate::lane::SmallCallLane;
use crate::outbox::Event;

/// A call's class. Clones share it: one is with the call, another with the task that may raise it.
#[derive(Clone, Debug)]
pub struct Rpc(Arc<State>);

#[derive(Debug)]
struct State {
    class: watch::Sender<Class>,
    message: Mutex<Option<UnderWay>>,
}

/// A message of the call that is being sent here.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) message: MessageId,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    /// The stream of a request, and the way to tell the other side.
    pub(crate) request: Option<(u64, Weak<SmallCallLane>)>,
}

impl Rpc {
    /// For a call at `class`.
    pub fn new(class: Class) -> Rpc {
        Rpc(Arc::new(State { class: watch::Sender::new(class), message: Mutex::default() }))
    }

    /// The class now.
    pub fn class(&self) -> Class {
        *self.0.class.borrow()
    }

    /// Moves the rest of the call to `class`, its reply included, even a half-sent one. A call that
    /// is as urgent stays as it is.
    pub fn raise(&self, class: Class) {
        let message = self.message();
        let is_raised = self.0.class.send_if_modified(|now| {
            let is_raised = class < *now;
            *now = class.min(*now);
            is_raised
        });
        let Some(UnderWay { message, events, request }) = message.as_ref().filter(|_| is_raised)
        else {
            return;
        };
        // It fails when the connection is over.
        let _ = events.send(Event::Raise(*message, class));
        if let Some((stream, lane)) = request
            && let Some(lane) = lane.upgrade()
        {
            lane.raise(*stream, class);
        }
    }

    /// Returns once the call is more urgent than `class`.
    pub async fn raised_above(&self, class: Class) {
        // The sender is alive.
        let _ = self.0.class.subscribe().wait_for(|now| *now < class).await;
    }

    /// Begins to send a message of the call, at its class of this moment.
    pub(crate) fn begin<T>(
        &self,
        begin: impl FnOnce(Class) -> Result<(T, UnderWay), CallError>,
    ) -> Result<T, CallError> {
        let mut message = self.message();
        let (begun, under_way) = begin(self.class())?;
        *message = Some(under_way);
        Ok(begun)
    }

    fn message(&self) -> MutexGuard<'_, Option<UnderWay>> {
        self.0.message.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
