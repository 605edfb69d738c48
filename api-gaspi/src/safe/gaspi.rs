//! A process between `gaspi_proc_init` and `gaspi_proc_term`.

use parking_lot::Mutex;

use super::pending::Pending;
use super::timeout::Timeout;
use super::{Element, Remote, Result, SliceMut, counted};
use crate::config::{self, Config};
use crate::environment::{self, Occupied};
use crate::process::{Initialising, Process};
use crate::safe::group::Activity;
use crate::statistics::{self, procedure};
use crate::status::Status;

/// This process as one of a job (§5.3): from here come segments, buffers, queues and groups, which borrow it. All of it may be used by several
/// threads.
///
/// Dropped, it leaves the job, as by [`term`](Gaspi::term). There is one at a time, and none beside a process that `gaspi_proc_init` has initialised.
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
/// What borrows it cannot outlive it:
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
    /// `None` at the end only.
    process: Option<Box<Process>>,
    /// Queues that nobody has.
    pub(super) queues: Mutex<Vec<u8>>,
    /// By group.
    pub(super) activities: Box<[Activity]>,
    _occupied: Occupied,
}

impl Gaspi {
    /// Joins the job, and waits until all of its processes have (`gaspi_proc_init`, §5.3.1).
    ///
    /// # Errors
    /// [`ErrInited`](Status::ErrInited): it has happened; [`ErrEnv`](Status::ErrEnv), [`ErrSn`](Status::ErrSn), [`ErrMemalloc`](Status::ErrMemalloc):
    /// a line on standard error says more; [`Failed`](super::Error::Failed): a process has died.
    pub fn init() -> Result<Gaspi> {
        Gaspi::begin(Config::default())?.wait()
    }

    /// The same with another configuration, which must be the same in all processes (§5.2), and with time-outs. A process that takes the place of a
    /// dead one does not wait ([`incarnation`](Gaspi::incarnation)).
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
    /// [`ErrConfig`](Status::ErrConfig), [`ErrSnPort`](Status::ErrSnPort): the configuration is not possible; else as [`init`](Gaspi::init).
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

    fn of(process: Box<Process>, occupied: Occupied) -> Gaspi {
        let config = process.config();
        // The first ones are handed out first.
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
    pub(super) fn process(&self) -> &Process {
        match &self.process {
            Some(process) => process,
            None => unreachable!("it has left the job"),
        }
    }

    /// This process's rank (§5.3.3).
    pub fn rank(&self) -> u16 {
        self.process().rank()
    }

    /// Number of processes (§5.3.2): ranks are below.
    pub fn size(&self) -> u16 {
        self.process().num()
    }

    /// Number of this process among those of its host.
    pub fn local_rank(&self) -> u16 {
        self.process().local_rank()
    }

    /// Number of processes on this process's host.
    pub fn local_size(&self) -> u16 {
        self.process().local_num()
    }

    /// The configuration in force (§5.2).
    pub fn config(&self) -> &Config {
        self.process().config()
    }

    /// How many processes have had this rank before; not 0: this one has taken the place of a dead one. Then
    /// [`group_all`](Gaspi::group_all) is still to be [committed](super::Group::commit).
    pub fn incarnation(&self) -> u32 {
        self.process().incarnation()
    }

    /// The health of every process as this one knows it, by rank: true is healthy (`gaspi_state_vec_get`, §5.5.2). Waits that end because a process
    /// has died do so until this has been called.
    pub fn states(&self) -> Vec<bool> {
        self.process().states()
    }

    /// Whether the process of `rank` lives, by a look at it rather than at the state vector.
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

    /// Builds the communication infrastructure to `rank` (§5.4.1). Nobody needs to: it is built when it is needed; but
    /// after [`disconnect`](Gaspi::disconnect).
    ///
    /// # Errors
    /// [`Timeout`](super::Error::Timeout): call again; [`ErrInvRank`](Status::ErrInvRank); [`Failed`](super::Error::Failed): it has died.
    pub fn connect(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        let connect = || self.process().connect(rank, timeout.into().millis());
        Ok(counted(const { procedure("gaspi_connect") }, connect)?)
    }

    /// Closes the connection to `rank`, after the requests that are under way (§5.4.2): operations with it fail until one of both
    /// [connects](Gaspi::connect) again.
    ///
    /// # Errors
    /// As [`connect`](Gaspi::connect).
    pub fn disconnect(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        Ok(self.process().disconnect(rank, timeout.into().millis())?)
    }

    /// Ends the process of `rank` by a signal, and waits until it has ended (§5.3.5).
    ///
    /// # Errors
    /// [`ErrInvRank`](Status::ErrInvRank) also for the own rank; [`Timeout`](super::Error::Timeout): it has not ended yet, call again.
    pub fn kill(&self, rank: u16, timeout: impl Into<Timeout>) -> Result<()> {
        Ok(self.process().kill(rank, timeout.into().millis())?)
    }

    /// Elements of the segment `id` of `rank`, from its beginning on. Nothing is looked up before it is used.
    pub fn remote<T: Element>(&self, rank: u16, id: u8) -> Remote<'_, T> {
        Remote::new(self, rank, id)
    }

    /// Receives a message from whoever sends one ([`Buffer::send`](super::Buffer::send)) into the first elements of `into`; gives the sender's rank
    /// (`gaspi_passive_receive`, §9.2.2).
    ///
    /// # Errors
    /// [`Timeout`](super::Error::Timeout): there is none, and none will be lost; [`ErrInvSize`](Status::ErrInvSize): it was longer, and the
    /// rest is lost; [`ErrInvCommsize`](Status::ErrInvCommsize): `into` is empty, or longer than the configuration's `passive_transfer_size_max`
    /// bytes; [`Failed`](super::Error::Failed): a process has died.
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

    /// Leaves the job (`gaspi_proc_term`, §5.3.4). Other processes must not use this one's memory any more: a
    /// [barrier](super::Group::barrier) before it sees to that.
    pub fn term(self) {
        drop(self);
    }

    /// The same within a time; gives the process back if that is over.
    pub fn try_term(mut self, timeout: impl Into<Timeout>) -> std::result::Result<(), Gaspi> {
        match self.leave(timeout.into()) {
            true => Ok(()),
            false => Err(self),
        }
    }

    /// False: the time is over.
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
