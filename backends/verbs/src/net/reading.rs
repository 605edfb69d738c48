//! Polls of the device: received messages, completions, and asynchronous events.

use std::sync::atomic::Ordering;

use unipgas_core::Error;
use unipgas_core::streams::{ProgressEvents, Stream};
use unipgas_verbs_sys::*;

use super::{Reader, VerbsNet};
use crate::connection::Connection;
use crate::device::EventSubject;
use crate::posting::PostedWork;
use crate::wire::{self, ImmediateKind};

impl VerbsNet {
    /// Makes progress, unless another thread does. `turn`: the agent looks at all connections afterwards.
    pub fn progress(&self, turn: bool) -> ProgressEvents {
        if turn {
            self.channel.hear();
            self.reader.lock().armed = false;
            self.hear_device();
        }
        if self.staging.load(Ordering::Acquire) > 0 {
            self.let_all_leave();
        }
        let look = self.looks.load(Ordering::Relaxed).wrapping_add(1);
        self.looks.store(look, Ordering::Relaxed);
        let lost = match turn || self.acceptor.is_busy() && look.is_multiple_of(32) {
            true => self.acceptor.attend(self),
            false => Vec::new(),
        };
        if let Some(mut reader) = self.reader.try_lock() {
            while self.read(&mut reader) {}
        }
        let gone = std::mem::take(&mut *self.gone.lock());
        for one in gone {
            self.acceptor.forget(one.number);
            self.remove(&one);
        }
        // After the polls, so that data from before the peer's end counts.
        for one in lost {
            self.lose(&one);
            if !one.begun_here && !one.is_open() {
                // The agent does not know the connection.
                self.remove(&one);
            }
        }
        self.owner.take(turn)
    }

    /// A caller waits, so staged work requests must leave.
    #[cold]
    fn let_all_leave(&self) {
        for one in self.all() {
            let mut queue = one.queue();
            if queue.staged.has_some() {
                queue.ring(&one.pair);
            }
        }
    }

    /// Arms the completion queues. True: they are empty, and the channel reports the next completion.
    pub fn may_sleep(&self) -> bool {
        let Some(mut reader) = self.reader.try_lock() else {
            return false;
        };
        if reader.armed {
            return true;
        }
        self.receive.arm();
        reader.sends.iter().for_each(|cq| cq.arm());
        reader.armed = true;
        let before = reader.completions;
        while self.read(&mut reader) {}
        reader.completions == before
    }

    /// Polls completion queues. True: there may be more.
    pub(super) fn read(&self, reader: &mut Reader) -> bool {
        let found = &mut reader.found;
        found.clear();
        let mut more = self.receive.poll(|one| found.push(*one));
        reader.completions += found.len() as u64;
        if !reader.found.is_empty() {
            self.hear(reader);
        }
        for nth in 0..reader.sends.len() {
            let found = &mut reader.found;
            found.clear();
            more |= reader.sends[nth].poll(|one| found.push(*one));
            reader.completions += found.len() as u64;
            if !reader.found.is_empty() {
                self.end(reader);
            }
        }
        more
    }

    /// Handles received messages and notices.
    fn hear(&self, reader: &mut Reader) {
        let Reader {
            found, receives, ..
        } = reader;
        let mut from = Vec::with_capacity(found.len());
        for one in &*found {
            let whole = one.status == IBV_WC_SUCCESS && one.wc_flags & IBV_WC_WITH_IMM != 0;
            let said = if whole {
                wire::split(one.imm_data)
            } else {
                None
            };
            let number = self.table.read().pairs.get(&one.qp_num).copied();
            let connection = number.and_then(|number| self.find(number));
            if let Some((connection, (kind, credits))) = connection.zip(said) {
                match kind {
                    ImmediateKind::Bytes => {
                        connection.take(receives.bytes(one.wr_id, one.byte_len as usize));
                        self.call(&connection);
                    }
                    ImmediateKind::Written => self.owner.written(),
                    ImmediateKind::Credits => {}
                    ImmediateKind::Close => {
                        connection.state.end();
                        self.call(&connection);
                    }
                }
                connection.state.hear();
                // Credit and close messages use reserved buffers.
                let read = u32::from(matches!(
                    kind,
                    ImmediateKind::Bytes | ImmediateKind::Written
                ));
                from.push((connection, read, credits));
            }
        }
        found.iter().for_each(|one| receives.take_back(one.wr_id));
        // Before credits are returned for these buffers.
        receives.fill();
        for (connection, read, credits) in from {
            connection.on_read(self, read, credits);
            if credits > 0 {
                self.on_room(&connection);
            }
        }
    }

    /// Handles new room.
    fn on_room(&self, connection: &Connection) {
        self.owner.on_operation();
        if connection.state.wants_room() {
            self.call(connection);
        }
    }

    /// Handles completions of posted work requests.
    fn end(&self, reader: &mut Reader) {
        let Reader { found, ends, .. } = reader;
        for one in &*found {
            let Some(connection) = self.find((one.wr_id >> 32) as u32) else {
                continue;
            };
            if one.status != IBV_WC_SUCCESS {
                self.fails(&connection, one.status);
                continue;
            }
            connection
                .queue()
                .end(one.wr_id as u32, |what| ends.push(what));
            connection.state.hear();
            self.on_room(&connection);
            for what in ends.drain(..) {
                match what {
                    PostedWork::Access(ticket) => {
                        ticket.end(Ok(()));
                    }
                    PostedWork::Close => self.on_closed(&connection),
                    PostedWork::Message(_) | PostedWork::Probe | PostedWork::Nothing => {}
                }
            }
        }
    }

    fn on_closed(&self, connection: &Connection) {
        let mut closing = self.closing.lock();
        if let Some(at) = closing
            .iter()
            .position(|one| one.number == connection.number)
        {
            self.gone.lock().push(closing.swap_remove(at));
        }
    }

    /// Handles a failed work request. All later ones fail too.
    #[cold]
    fn fails(&self, connection: &Connection, status: u32) {
        if status != IBV_WC_WR_FLUSH_ERR && !connection.state.has_ended() {
            tracing::debug!(
                "verbs: a connection to the process at {} has failed: {}",
                connection.with.door,
                self.device.library().status(status)
            );
        }
        if status == IBV_WC_RETRY_EXC_ERR && !connection.state.has_ended() {
            (self.departed).add(connection.with.secret, true, Error::PeerDead);
        }
        self.lose(connection);
        self.on_closed(connection);
    }

    /// Handles asynchronous events of the device.
    fn hear_device(&self) {
        while let Some((event, about)) = self.device.next_event() {
            let what = self.device.library().event(event);
            let pair = match about {
                EventSubject::Pair(pair) => Some(pair),
                EventSubject::Port(port) if port != self.port.number => continue,
                EventSubject::Port(_) | EventSubject::Other => None,
            };
            let place = format!("{} port {}", self.device.context.name, self.port.number);
            match event {
                IBV_EVENT_DEVICE_FATAL | IBV_EVENT_CQ_ERR | IBV_EVENT_SRQ_ERR => {
                    unipgas_core::tell(&format!("verbs: {place} has failed: {what}"));
                    self.dead.store(true, Ordering::Release);
                    self.all().iter().for_each(|one| self.lose(one));
                }
                IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                    let number = pair.and_then(|pair| self.table.read().pairs.get(&pair).copied());
                    if let Some(connection) = number.and_then(|number| self.find(number)) {
                        tracing::debug!("verbs: {what}");
                        self.lose(&connection);
                    }
                }
                IBV_EVENT_PORT_ERR
                | IBV_EVENT_PORT_ACTIVE
                | IBV_EVENT_LID_CHANGE
                | IBV_EVENT_PKEY_CHANGE
                | IBV_EVENT_GID_CHANGE => {
                    unipgas_core::tell(&format!("verbs: {place}: {what}"));
                }
                _ => tracing::debug!("verbs: {place}: {what}"),
            }
        }
    }
}
