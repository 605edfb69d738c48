//! A process between `gaspi_proc_init` and `gaspi_proc_term`.

use parking_lot::Mutex;

use super::pending::Pending;
use super::timeout::Timeout;
use super::{Element, RemoteElement, Result, SliceMut, counted};
use crate::config::{self, Config};
use crate::environment::{self, Occupied};
use crate::process::{GaspiProcess, Initialising};
use crate::safe::group::Activity;
use crate::statistics::{self, procedure};
use crate::status::Status;

/// This process as a member of a job (§5.3). Segments, buffers, queues and groups come from it, and borrow it. Several threads may use all of
/// them.
///
/// Drop leaves the job, as [`term`](Gaspi::term). Only one may exist at a time, and none after an initialisation by `gaspi_proc_init`.
///
/// ```
/// use unipgas::gaspi::safe::{Error, Gaspi};
///
/// unipgas::init(); // The table of backends.
/// let gaspi = Gaspi::init()?;
/// // Without a launcher it is a job of one.
/// assert_eq!((gaspi.rank(), gaspi.size()), (0, 1));
/// assert!(Gaspi::init().is_err(), "one at a time");
/// gaspi.term();
/// # Ok::<(), Error>(())
/// ```
///
/// A borrower cannot outlive it:
///
/// ```compile_fail,E0505
/// # use unipgas::gaspi::safe::{Error, Gaspi};
/// # let gaspi = Gaspi::init()?;
/// let segment = gaspi.segment::<u64>(0, 100)?;
/// gaspi.term();
/// segment.get(0);
/// # Ok::<(), Error>(())
/// ```
pub struct Gaspi {
    /// `None` after the process has left the job.
    process: Option<Box<GaspiProcess>>,
    /// Free queues.
    pub(super) queues: Mutex<Vec<u8>>,
    /// The operations in progress of each group.
    pub(super) activities: Box<[Activity]>,
    _occupied: Occupied,
}

impl Gaspi {
    /// Joins the job, and waits for all of its processes (`gaspi_proc_init`, §5.3.1).
    ///
    /// # Errors
    /// [`ErrInited`](Status::ErrInited): a process is already initialised; [`ErrEnv`](Status::ErrEnv), [`ErrSn`](Status::ErrSn),
    /// [`ErrMemalloc`](Status::ErrMemalloc): a line on standard error has details; [`Failed`](super::Error::Failed): a process has died.
    pub fn init() -> Result<Gaspi> {
        Gaspi::begin(Config::default())?.wait()
    }

    /// As [`init`](Gaspi::init), with a configuration and with timeouts. The configuration must be the same in all processes (§5.2). A process
    /// that replaces a dead one does not wait ([`incarnation`](Gaspi::incarnation)).
    ///
    /// ```
    /// use std::time::Duration;
    /// use unipgas::gaspi::safe::{Error, Gaspi};
    /// use unipgas::gaspi::Config;
    ///
    /// # unipgas::init();
    /// let config = Config { queue_size_max: 64, ..Config::default() };
    /// let gaspi = Gaspi::begin(config)?.poll(Duration::from_secs(60))?.ok_or(Error::Timeout)?;
    /// assert_eq!(gaspi.config().queue_size_max, 64);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrConfig`](Status::ErrConfig), [`ErrSnPort`](Status::ErrSnPort): the configuration is not possible. Others as [`init`](Gaspi::init).
    pub fn begin(config: Config) -> Result<Pending<'static, Gaspi>> {
        config::check(&config)?;
        let mut occupied = Some(environment::occupy()?);
        environment::started();
        statistics::begin()?;
        let mut initialising = Initialising::begin(&config)?;
        Pending::begin(move |timeout| {
            let process = initialising.advance(timeout)?;
            let occupied = occupied.take().ok_or(Status::ErrInited)?;
            Ok(Gaspi::of(process, occupied))
        })
    }

    fn of(process: Box<GaspiProcess>, occupied: Occupied) -> Gaspi {
        let config = process.config();
        // The vector pops its end: low numbers are handed out first.
        let queues = (0..config.queue_num as u8).rev().collect();
        let activities = (0..config.group_max).map(|_| Activity::default()).collect();
        Gaspi {
            process: Some(process),
            queues: Mutex::new(queues),
            activities,
            _occupied: occupied,
        }
    }

    #[inline(always)]
    pub(super) fn process(&self) -> &GaspiProcess {
        match &self.process {
            Some(process) => process,
            None => unreachable!("it has left the job"),
        }
    }

    /// Rank of this process (§5.3.3).
    pub fn rank(&self) -> u16 {
        self.process().rank()
    }

    /// Number of processes (§5.3.2). Ranks are below it.
    pub fn size(&self) -> u16 {
        self.process().num()
    }

    /// Number of this process among the processes of its host.
    pub fn local_rank(&self) -> u16 {
        self.process().local_rank()
    }

    /// Number of processes on this host.
    pub fn local_size(&self) -> u16 {
        self.process().local_num()
    }

    /// The configuration in force (§5.2).
    pub fn config(&self) -> &Config {
        self.process().config()
    }

    /// Number of earlier processes of this rank. If it is not 0, this process has replaced a dead one, and the program must
    /// [commit](super::Group::commit) [`group_all`](Gaspi::group_all).
    pub fn incarnation(&self) -> u32 {
        self.process().incarnation()
    }

    /// The health of each process that this process knows, by rank: true is healthy (`gaspi_state_vec_get`, §5.5.2). After a death, waits fail
    /// until this call.
    pub fn states(&self) -> Vec<bool> {
        self.process().states()
    }

    /// Whether the process of `rank` lives. It checks the process, not the state vector.
    ///
    /// # Errors
    /// [`ErrInvRank`](Status::ErrInvRank).
    pub fn is_healthy(&self, rank: u16) -> Result<bool> {
        match self.process().ping(rank) {
            Ok(()) => Ok(true),
            Err(Status::Error) => Ok(false),
            Err(status) => Err(status.into()),
        }
    }

    /// Connects to `rank` (§5.4.1). It is only necessary after [`disconnect`](Gaspi::disconnect): the first operation connects too.
    ///
    /// # Errors
    /// [`Timeout`](super::Error::Timeout): call again; [`ErrInvRank`](Status::ErrInvRank); [`Failed`](super::Error::Failed): the process has died.
    pub fn connect(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        let connect = || self.process().connect(rank, timeout.into().millis());
        Ok(counted(const { procedure("gaspi_connect") }, connect)?)
    }

    /// Closes the connection to `rank`, after the requests in progress (§5.4.2). Operations between both ranks fail until one side
    /// [connects](Gaspi::connect) again.
    ///
    /// # Errors
    /// As [`connect`](Gaspi::connect).
    pub fn disconnect(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        Ok(self.process().disconnect(rank, timeout.into().millis())?)
    }

    /// Ends the process of `rank` with a signal, and waits for its end (§5.3.5).
    ///
    /// # Errors
    /// [`ErrInvRank`](Status::ErrInvRank) also for the own rank; [`Timeout`](super::Error::Timeout): the process still runs; call again.
    pub fn kill(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        Ok(self.process().kill(rank, timeout.into().millis())?)
    }

    /// The first element of the segment `id` of `rank`. The first use looks up the segment.
    pub fn remote<T: Element>(&self, rank: u16, id: u8) -> RemoteElement<'_, T> {
        RemoteElement::new(self, rank, id)
    }

    /// Receives a message ([`Buffer::send`](super::Buffer::send)) from any rank into the first elements of `into`. Returns the rank of the sender
    /// (`gaspi_passive_receive`, §9.2.2).
    ///
    /// # Errors
    /// [`Timeout`](super::Error::Timeout): no message, and none is lost; [`ErrInvSize`](Status::ErrInvSize): the message is longer, and the rest is
    /// lost; [`ErrInvCommsize`](Status::ErrInvCommsize): `into` is empty, or longer than `passive_transfer_size_max` bytes of the configuration;
    /// [`Failed`](super::Error::Failed): a process has died.
    pub fn receive<T: Element>(
        &self,
        into: SliceMut<'_, T>,
        timeout: impl Into<Timeout>,
    ) -> Result<u16> {
        let (bytes, timeout) = (super::passive::bytes::<T>(into.place()), timeout.into());
        let receive = || self.process().passive_receive(bytes, timeout.millis());
        Ok(counted(
            const { procedure("gaspi_passive_receive") },
            receive,
        )?)
    }

    /// Leaves the job (`gaspi_proc_term`, §5.3.4). Other processes must have ended their accesses to the memory of this process: a
    /// [barrier](super::Group::barrier) before the call ensures it.
    pub fn term(self) {
        drop(self);
    }

    /// As [`term`](Gaspi::term), with a timeout. Returns the process after a timeout.
    pub fn try_term(mut self, timeout: impl Into<Timeout>) -> std::result::Result<(), Gaspi> {
        match self.leave(timeout.into()) {
            true => Ok(()),
            false => Err(self),
        }
    }

    /// False after a timeout.
    fn leave(&mut self, timeout: Timeout) -> bool {
        let Some(process) = self.process.take() else {
            return true;
        };
        let (rank, size) = (process.rank(), process.num());
        match process.term(timeout.millis()) {
            Ok(()) => {
                statistics::end(rank, size);
                true
            }
            Err((process, _)) => {
                self.process = Some(process);
                false
            }
        }
    }
}

impl Drop for Gaspi {
    fn drop(&mut self) {
        self.leave(Timeout::Block);
    }
}
