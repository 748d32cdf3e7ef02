//! The other side's unanswered calls, so that they can be raised.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::nouns::Class;

use crate::rpc::Rpc;
use crate::transport::STREAMS_MAX;

/// A connection's calls by the streams on which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    open: BTreeMap<u64, Rpc>,
    /// Raised before they arrived, or after their answer: no more than there may be streams.
    raised: BTreeMap<u64, Class>,
}

/// Lists a call where it can be raised, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    asked: Asked,
    stream: u64,
    pub(crate) rpc: Rpc,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.asked.calls().open.remove(&self.stream);
    }
}

impl Asked {
    /// A call has come on `stream`, sent at `class`.
    pub(crate) fn came(&self, stream: u64, class: Class) -> Listed {
        let mut calls = self.calls();
        let raised = calls.raised.remove(&stream).unwrap_or(class);
        let rpc = Rpc::new(class.min(raised));
        calls.open.insert(stream, rpc.clone());
        Listed { asked: self.clone(), stream, rpc }
    }

    /// The other side wants its call on `stream` at `class`. This may arrive before the call.
    pub(crate) fn raise(&self, stream: u64, class: Class) {
        let mut calls = self.calls();
        let call = calls.open.get(&stream).cloned();
        if call.is_none() {
            let raised = calls.raised.entry(stream).or_insert(class);
            *raised = class.min(*raised);
            if calls.raised.len() > STREAMS_MAX as usize {
                // The oldest is answered long ago.
                calls.raised.pop_first();
            }
        }
        drop(calls);
        if let Some(call) = call {
            call.raise(class);
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_may_overtake_its_call() {
        let asked = Asked::default();
        asked.raise(4, Class::Fetch);
        assert_eq!(asked.came(4, Class::Prefetch).rpc.class(), Class::Fetch);
        let late = asked.came(8, Class::Prefetch);
        asked.raise(8, Class::StoreData);
        asked.raise(8, Class::Prefetch);
        assert_eq!(late.rpc.class(), Class::StoreData);
    }

    #[test]
    fn calls_that_never_come_are_forgotten() {
        let asked = Asked::default();
        (0..10_000).for_each(|stream| asked.raise(stream, Class::Fetch));
        assert_eq!(asked.calls().raised.len(), STREAMS_MAX as usize);
        drop(asked.came(1, Class::Prefetch));
        assert!(asked.calls().open.is_empty());
    }
}
