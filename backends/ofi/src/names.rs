//! Endpoints that this process talks to, in the provider's address vector as long as anybody does.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use unipgas_core::Result;

use crate::net::Net;

/// Those that somebody uses, by name.
#[derive(Default)]
pub struct Names(Mutex<HashMap<Box<[u8]>, Used>>);

struct Used {
    /// In the address vector.
    number: u64,
    by: usize,
}

/// An endpoint that somebody uses.
pub struct Name {
    net: Weak<Net>,
    name: Box<[u8]>,
    /// In the address vector, until this is dropped.
    pub number: u64,
}

impl Names {
    /// The number of an endpoint that is in use.
    pub fn number(&self, name: &[u8]) -> Option<u64> {
        self.0.lock().get(name).map(|used| used.number)
    }
}

impl Name {
    /// The endpoint `name` is used from now on. Errors: [`Error::Unreachable`](unipgas_core::Error::Unreachable).
    pub fn hold(net: &Net, name: &[u8]) -> Result<Arc<Self>> {
        let mut used = net.names.0.lock();
        let number = match used.get_mut(name) {
            Some(used) => {
                used.by += 1;
                used.number
            }
            None => {
                let number = net.fabric.insert(name)?;
                used.insert(name.into(), Used { number, by: 1 });
                number
            }
        };
        Ok(Arc::new(Name {
            net: net.me.clone(),
            name: name.into(),
            number,
        }))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // Without it the address vector has been closed.
        let Some(net) = self.net.upgrade() else {
            return;
        };
        let mut used = net.names.0.lock();
        if let Some(one) = used.get_mut(&self.name) {
            one.by -= 1;
            if one.by == 0 {
                net.fabric.remove(one.number);
                used.remove(&self.name);
            }
        }
    }
}
